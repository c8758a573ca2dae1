package dspkit;

import java.lang.management.ManagementFactory;
import java.util.Collections;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.SparkContext;
import org.apache.spark.SparkEnv;
import org.apache.spark.api.plugin.DriverPlugin;
import org.apache.spark.api.plugin.ExecutorPlugin;
import org.apache.spark.api.plugin.PluginContext;
import org.apache.spark.api.plugin.SparkPlugin;

/**
 * Joins executors of their own to the jobs, which live in the driver: often, each says how many records its sources
 * would take, and hears how many they may, and when an epoch shall end. Now and then it tells how busy its machine is.
 */
public final class Plugin implements SparkPlugin {
  private static final long EVERY_MS = 25, LOOK = 20; // every 20th time it looks at its machine
  private static final double SILENT_S = 2; // of what was before nothing is known
  private static final Map<String, double[]> MACHINES = new HashMap<>(); // seconds of full load, and when we heard last
  private static final Map<String, long[]> FILLED = new ConcurrentHashMap<>();

  /** Seconds of full load so far (a second with half the cores busy counts half), by machine with executors. */
  public static Map<String, Double> busy() {
    Map<String, Double> seconds = new HashMap<>();
    synchronized (MACHINES) {
      MACHINES.forEach((host, at) -> seconds.put(host, at[0]));
    }
    return seconds;
  }

  /** The least round trips between workers of the last seconds. */
  public static Map<String, Double> pings(double last) {
    return Pings.least(last);
  }

  /** A machine was so busy since anybody there spoke last. */
  private static void heard(String host, double load) {
    double now = System.nanoTime() * 1e-9;
    synchronized (MACHINES) {
      double[] at = MACHINES.computeIfAbsent(host, any -> new double[] {0, now});
      at[0] += load * Math.min(now - at[1], SILENT_S);
      at[1] = now;
    }
  }

  /** How many records each partition of a source's log has, as this process knows it; null if it does not. */
  static long[] filled(int job, int operator) {
    Job here = Job.get(job);
    return here != null ? here.filled(operator) : FILLED.get(job + "." + operator);
  }

  @Override
  public DriverPlugin driverPlugin() {
    return new DriverPlugin() {
      @Override
      public Map<String, String> init(SparkContext spark, PluginContext context) {
        synchronized (MACHINES) {
          MACHINES.clear(); // of a Spark before this one
        }
        Pings.forget();
        return Collections.emptyMap();
      }

      @Override
      @SuppressWarnings("unchecked")
      public Object receive(Object message) {
        if ("filled".equals(message)) return Job.filled();
        if (!(message instanceof Object[] load)) return Job.answer((Map<Integer, Long>) message);
        if ("ping".equals(load[0])) return Pings.hear(load);
        heard((String) load[0], (Double) load[1]);
        return null;
      }
    };
  }

  @Override
  public ExecutorPlugin executorPlugin() {
    return new ExecutorPlugin() {
      private Thread listener, pings;

      @Override
      public void init(PluginContext context, Map<String, String> conf) {
        if ("driver".equals(context.executorID())) return; // local mode: the jobs themselves are here
        listener = thread(() -> listen(context), "dspkit-jobs");
        if (Pings.worker() >= 0) pings = thread(() -> ping(context), "dspkit-pings");
      }

      @Override
      public void shutdown() {
        if (listener != null) listener.interrupt();
        if (pings != null) pings.interrupt();
      }
    };
  }

  private static Thread thread(Runnable runs, String name) {
    Thread made = new Thread(runs, name);
    made.setDaemon(true);
    made.start();
    return made;
  }

  private static void ping(PluginContext context) {
    try {
      Pings.run(context, Pings.worker());
    } catch (InterruptedException end) {
      // The process ends.
    }
  }

  @SuppressWarnings("unchecked")
  private static void listen(PluginContext context) {
    for (long turn = 0; ; turn++) {
      try {
        Thread.sleep(EVERY_MS);
        HashMap<Integer, Long> wishes = Lease.wishes();
        if (!wishes.isEmpty()) {
          Lease.hear(wishes, (Map<Integer, long[]>) context.ask(wishes));
          FILLED.putAll((Map<String, long[]>) context.ask("filled"));
        }
        double load = turn % LOOK == 0 ? load() : -1;
        if (load >= 0) context.send(new Object[] {SparkEnv.get().blockManager().blockManagerId().host(), load});
      } catch (InterruptedException end) {
        return;
      } catch (Exception error) {
        // The driver is busy or gone: ask again; when it is gone Spark ends this process.
      }
    }
  }

  /** The busy share of this machine's cores since this was asked last; negative where Java does not know. */
  private static double load() {
    var machine = ManagementFactory.getOperatingSystemMXBean();
    return machine instanceof com.sun.management.OperatingSystemMXBean more ? more.getCpuLoad() : -1;
  }
}

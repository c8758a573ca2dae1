package dspkit;

import java.util.Collections;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.SparkContext;
import org.apache.spark.api.plugin.DriverPlugin;
import org.apache.spark.api.plugin.ExecutorPlugin;
import org.apache.spark.api.plugin.PluginContext;
import org.apache.spark.api.plugin.SparkPlugin;

/** Tells executors that are not the driver when an epoch shall end: the versions of all jobs, asked for often. */
public final class Plugin implements SparkPlugin {
  private static final Map<Integer, Long> VERSIONS = new ConcurrentHashMap<>();
  private static final Map<String, long[]> FILLED = new ConcurrentHashMap<>();
  private static final long EVERY_MS = 25;

  /** The version of a job as this process knows it; `otherwise` where it has heard nothing yet. */
  static long version(int job, long otherwise) {
    Job here = Job.get(job);
    return here != null ? here.version() : VERSIONS.getOrDefault(job, otherwise);
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
        return Collections.emptyMap();
      }

      @Override
      public Object receive(Object message) {
        return "filled".equals(message) ? Job.filled() : Job.versions();
      }
    };
  }

  @Override
  public ExecutorPlugin executorPlugin() {
    return new ExecutorPlugin() {
      private Thread listener;

      @Override
      public void init(PluginContext context, Map<String, String> conf) {
        if ("driver".equals(context.executorID())) return; // local mode: the jobs themselves are here
        listener = new Thread(() -> listen(context), "dspkit-versions");
        listener.setDaemon(true);
        listener.start();
      }

      @Override
      public void shutdown() {
        if (listener != null) listener.interrupt();
      }
    };
  }

  @SuppressWarnings("unchecked")
  private static void listen(PluginContext context) {
    while (true) {
      try {
        Thread.sleep(EVERY_MS);
        VERSIONS.putAll((Map<Integer, Long>) context.ask("versions"));
        FILLED.putAll((Map<String, long[]>) context.ask("filled"));
      } catch (InterruptedException end) {
        return;
      } catch (Exception error) {
        // The driver is busy or gone: ask again; when it is gone Spark ends this process.
      }
    }
  }
}

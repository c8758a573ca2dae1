package dspkit;

import java.util.Collections;
import java.util.HashMap;
import java.util.Map;
import org.apache.spark.SparkContext;
import org.apache.spark.api.plugin.DriverPlugin;
import org.apache.spark.api.plugin.ExecutorPlugin;
import org.apache.spark.api.plugin.PluginContext;
import org.apache.spark.api.plugin.SparkPlugin;

/**
 * Joins executors of their own to the jobs, which live in the driver: often, each says how many records its sources
 * would take, and hears how many they may, and when an epoch shall end.
 */
public final class Plugin implements SparkPlugin {
  private static final long EVERY_MS = 25;

  @Override
  public DriverPlugin driverPlugin() {
    return new DriverPlugin() {
      @Override
      public Map<String, String> init(SparkContext spark, PluginContext context) {
        return Collections.emptyMap();
      }

      @Override
      @SuppressWarnings("unchecked")
      public Object receive(Object message) {
        return Job.answer((Map<Integer, Long>) message);
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
        listener = new Thread(() -> listen(context), "dspkit-jobs");
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
        HashMap<Integer, Long> wishes = Lease.wishes();
        if (!wishes.isEmpty()) Lease.hear(wishes, (Map<Integer, long[]>) context.ask(wishes));
      } catch (InterruptedException end) {
        return;
      } catch (Exception error) {
        // The driver is busy or gone: ask again; when it is gone Spark ends this process.
      }
    }
  }
}

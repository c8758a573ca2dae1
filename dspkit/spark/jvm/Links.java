package dspkit;

import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.catalyst.InternalRow;

/**
 * The links from other workers of a cluster to this one, as its user describes them: a delay, and a rate that all tasks
 * of this executor share. Frames are held back as if they travelled that far; the machine's own network adds little.
 */
final class Links {
  private static final int WORKERS = 12; // bits of a sender's number that are the operator's, as in exchange.py
  private static final long QUEUE_NANOS = 500_000_000; // of bytes that wait at a link, beyond which its senders wait
  private static final Map<Integer, long[]> FREE = new ConcurrentHashMap<>(); // by sender: when its link is free

  private record Link(long delayNanos, double bytesPerSecond) {}

  private final Map<Integer, Link> links = new HashMap<>();
  private final int operator;

  private Links(int operator) {
    this.operator = operator;
  }

  /** The links to the task's worker; null if frames are held on none. */
  static Links of(TaskContext task, int operator) {
    Links made = new Links(operator);
    made.links.putAll(described(task.getLocalProperty("dspkit.links"), Pings.worker()));
    return made.links.isEmpty() ? null : made;
  }

  /** The links to a worker, by the number of the sender. */
  private static Map<Integer, Link> described(String links, int own) {
    Map<Integer, Link> found = new HashMap<>();
    if (links == null || links.isEmpty() || own < 0) return found;
    for (String each : links.split(";")) {
      String[] link = each.split(",");
      if (Integer.parseInt(link[1]) != own) continue;
      found.put(
          Integer.parseInt(link[0]), new Link((long) (Double.parseDouble(link[2]) * 1e9), Double.parseDouble(link[3])));
    }
    return found;
  }

  /** The delays in nanoseconds of the links to a worker, by the number of the sender. */
  static Map<Integer, Long> delays(String links, int own) {
    Map<Integer, Long> found = new HashMap<>();
    described(links, own).forEach((sender, link) -> found.put(sender, link.delayNanos));
    return found;
  }

  /**
   * When a row arrives, on the clock of this process; 0 for at once. Frames for other operators only pass through. It
   * returns once the link's queue has room.
   */
  long due(InternalRow row, long bytes) throws InterruptedException {
    Link link = row.getInt(0) == operator ? links.get(row.getInt(1) >> WORKERS) : null;
    if (link == null) return 0;
    long now = System.nanoTime();
    if (Double.isInfinite(link.bytesPerSecond)) return now + link.delayNanos;
    long[] free = FREE.computeIfAbsent(row.getInt(1) >> WORKERS, any -> new long[] {now});
    long sent;
    synchronized (free) {
      sent = free[0] = Math.max(now, free[0]) + (long) (bytes / link.bytesPerSecond * 1e9);
    }
    if (sent - now > QUEUE_NANOS) Thread.sleep((sent - now - QUEUE_NANOS) / 1_000_000);
    return sent + link.delayNanos;
  }
}

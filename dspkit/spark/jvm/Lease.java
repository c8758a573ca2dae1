package dspkit;

import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;

/** Records that the sources in this executor may take of one job: asked for in advance, as much as they need. */
final class Lease implements Allowance {
  private static final long LEAST = 256;
  private static final Map<Integer, Lease> LEASES = new ConcurrentHashMap<>();

  private final AtomicLong left = new AtomicLong(), used = new AtomicLong();
  private volatile long version = -1;
  private volatile int frameRecords = 64;

  static Lease of(int job) {
    return LEASES.computeIfAbsent(job, id -> new Lease());
  }

  /** By job: how many more records shall be at hand, which is twice what went since this was asked last. */
  static HashMap<Integer, Long> wishes() {
    HashMap<Integer, Long> wishes = new HashMap<>();
    LEASES.forEach((job, at) -> wishes.put(job, Math.max(0, 2 * at.used.getAndSet(0) + LEAST - at.left.get())));
    return wishes;
  }

  /** The driver's answer by job: version, records granted, records in a frame. Jobs that it has no more are dropped. */
  static void hear(Map<Integer, Long> wishes, Map<Integer, long[]> answer) {
    wishes.keySet().stream().filter(job -> !answer.containsKey(job)).forEach(LEASES::remove);
    answer.forEach(
        (job, told) -> {
          Lease at = of(job);
          at.left.addAndGet(told[1]);
          at.frameRecords = (int) told[2];
          at.version = told[0];
        });
  }

  @Override
  public long version(long otherwise) {
    return version < 0 ? otherwise : version;
  }

  @Override
  public long credit() {
    return left.get();
  }

  @Override
  public int frameRecords() {
    return frameRecords;
  }

  @Override
  public void took(long records) {
    left.addAndGet(-records);
    used.addAndGet(records);
  }
}

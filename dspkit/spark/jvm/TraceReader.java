package dspkit;

import java.io.IOException;
import java.io.Serializable;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.time.Instant;
import java.util.concurrent.locks.LockSupport;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.streaming.PartitionOffset;
import org.apache.spark.sql.connector.read.streaming.SupportsRealTimeRead;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** One reader of the log: takes what has become due in its partitions, a frame at a time. */
final class TraceReader implements PartitionReader<InternalRow>, SupportsRealTimeRead<InternalRow> {
  private static final long NAP_NS = 2_000_000; // between looks at the clock and at the job's version
  // Each stage holds a frame until the next one comes, and works on it as a whole. So frames are small and follow one
  // another soon while an epoch begins, that its first records arrive soon; and soon as long as there is enough to fill
  // them. Then they come less and less often, as each costs the same however little it holds.
  private static final long SMALLEST = 2;
  private static final double SOONEST_MICROS = 1_000, LATEST_MICROS = 10_000, ENOUGH = 256, SLOWER = 1.25, FASTER = 0.5;

  static final class Settings implements Serializable {
    private static final long serialVersionUID = 1;
    final int job, operator, partitions;
    final Trace trace; // null: of another log, of which the driver says how far it is filled

    Settings(CaseInsensitiveStringMap options) {
      job = options.getInt("job", 0);
      operator = options.getInt("operator", 0);
      partitions = options.getInt("partitions", 16);
      trace = options.get("trace") == null ? null : new Trace(options.get("trace"));
    }

    /** How many records each partition of a log which began then holds by now. */
    long[] available(long startMicros) {
      long[] upto = new long[partitions];
      if (startMicros <= 0) return upto;
      if (trace == null) {
        long[] filled = Plugin.filled(job, operator);
        return filled == null ? upto : filled;
      }
      long all = trace.count((micros() - startMicros) / 1e6);
      for (int p = 0; p < partitions; p++) upto[p] = Math.max(0, (all - p + partitions - 1) / partitions);
      return upto;
    }
  }

  /** What one reader has to do in one epoch; `to` is null in real-time mode. */
  static final class Share implements InputPartition {
    private static final long serialVersionUID = 1;
    final Settings settings;
    final int index, readers;
    final long[] from, to;
    final long startMicros, version;
    final boolean paused;

    Share(Settings settings, int index, int readers, long[] from, long[] to, Job job) {
      this.settings = settings;
      this.index = index;
      this.readers = readers;
      this.from = from;
      this.to = to;
      this.startMicros = job.startMicros();
      this.version = job.applied();
      this.paused = job.paused();
    }
  }

  private final Share share;
  private final Settings settings;
  private final Allowance allowance;
  private final long[] next;
  private final int own;
  private final GenericInternalRow row = new GenericInternalRow(4);
  private int turn; // the partition to begin with, so that none comes last for ever
  private long due;
  private double linger = SOONEST_MICROS;
  private long most = SMALLEST; // records in a frame, by what this reader has handed out so far

  TraceReader(Share share) {
    this.share = share;
    settings = share.settings;
    allowance = Allowance.of(settings.job);
    next = share.from.clone();
    own = (settings.partitions - share.index + share.readers - 1) / share.readers;
    row.setInt(0, settings.operator);
    row.setInt(1, -1); // from no operator
    row.setInt(2, 0);
  }

  private static long micros() {
    Instant now = Instant.now();
    return now.getEpochSecond() * 1_000_000 + now.getNano() / 1_000;
  }

  /** Take up to a frame of records below `limit`; false if there are none. */
  private boolean take(long[] limit) {
    ByteBuffer frame = ByteBuffer.allocate(16 + 24 * own).order(ByteOrder.LITTLE_ENDIAN);
    frame.putLong(micros()).putLong(share.startMicros);
    Allowance job = limit == null ? allowance : null; // a micro-batch is bounded as it is
    long room = allowance.frameRecords();
    if (job != null) room = Math.min(Math.min(room, most), job.credit());
    long before = room;
    if (room <= 0) return false;
    long each = Math.max(1, room / own);
    long[] there = limit == null ? settings.available(share.startMicros) : limit;
    boolean more = false;
    for (int i = 0; i < own; i++) {
      int p = share.index + ((turn + i) % own) * share.readers;
      long end = Math.min(there[p], next[p] + Math.min(each, room));
      more |= there[p] > end;
      if (end <= next[p]) continue;
      frame.putLong(p).putLong(next[p]).putLong(end);
      room -= end - next[p];
      next[p] = end;
    }
    turn = (turn + 1) % Math.max(1, own);
    if (frame.position() == 16) return false;
    if (job != null) {
      job.took(before - room);
      pace(before - room, more);
    }
    row.update(3, java.util.Arrays.copyOf(frame.array(), frame.position()));
    return true;
  }

  /** Real-time mode: when the next frame is due and how large it may be, by what there was for this one. */
  private void pace(long taken, boolean more) {
    due = more ? 0 : micros() + (long) linger;
    double wanted = linger * Math.min(SLOWER, Math.max(FASTER, ENOUGH / taken));
    linger = Math.min(LATEST_MICROS, Math.max(SOONEST_MICROS, wanted));
    most = Math.min(2 * most, Integer.MAX_VALUE);
  }

  @Override
  public boolean next() {
    return take(share.to);
  }

  @Override
  public InternalRow get() {
    return row;
  }

  @Override
  public PartitionOffset getOffset() {
    long[] got = next.clone();
    for (int p = 0; p < got.length; p++) if (p % share.readers != share.index) got[p] = -1;
    return new TraceSource.Part(got);
  }

  /** No record ends the epoch for this reader: when its time is up, or as soon as the job has another version. */
  @Override
  public RecordStatus nextWithTimeout(Long timeoutMs) throws IOException {
    long end = System.currentTimeMillis() + timeoutMs;
    while (allowance.version(share.version) <= share.version && System.currentTimeMillis() < end) {
      if (!share.paused && own > 0 && micros() >= due && take(null))
        return RecordStatus.newStatusWithArrivalTimeMs(System.currentTimeMillis());
      long soon = (due - micros()) * 1_000;
      LockSupport.parkNanos(soon > 0 ? Math.min(NAP_NS, soon) : NAP_NS);
      if (Thread.interrupted()) throw new IOException("interrupted");
    }
    return RecordStatus.newStatusWithoutArrivalTime(false);
  }

  @Override
  public void close() {}
}

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
  private static final long NAP_NS = 5_000_000; // between looks at the job's version
  private static final long LARGEST = 8192; // records in a frame, whose overhead is that of some hundred
  // A frame costs the same however little it holds. So frames come as often as they hold ENOUGH records: soon while an
  // epoch begins and as long as there is more, then less and less often. Several readers wait longer each, as the job
  // works on the frames of all; and they take theirs at the same moments, so that a receiver finds several waiting.
  private static final double SOONEST_MICROS = 1_000, LATEST_MICROS = 20_000, ENOUGH = 512, SLOWER = 1.25, FASTER = 0.5;

  private static final long FAR_MICROS = 10_000_000; // no wait for a frame is as long
  private static final long TICK_MICROS = 200_000; // at most between frames of a source with event time

  static final class Settings implements Serializable {
    private static final long serialVersionUID = 1;
    final int job, operator, partitions;
    final boolean ticks; // whether frames also name the partitions of which the log holds no further record
    final long epochNanos; // how long a reader reads in one epoch of real-time mode, from its own beginning
    final Trace trace; // null: of another log, of which the driver says how far it is filled

    Settings(CaseInsensitiveStringMap options) {
      job = options.getInt("job", 0);
      operator = options.getInt("operator", 0);
      partitions = options.getInt("partitions", 16);
      ticks = options.getBoolean("ticks", false);
      epochNanos = options.getLong("epoch_ms", 10_000) * 1_000_000;
      trace = options.get("trace") == null ? null : new Trace(options.get("trace"));
    }

    /** Whether anybody has said yet how far another log is filled. */
    boolean known() {
      return trace != null || Plugin.filled(job, operator) != null;
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
    private final String[] homes;

    Share(Settings settings, int index, int readers, long[] from, long[] to, Job job) {
      this.settings = settings;
      this.index = index;
      this.readers = readers;
      this.from = from;
      this.to = to;
      this.startMicros = job.startMicros();
      this.version = job.applied();
      this.paused = job.paused();
      this.homes = job.homes(settings.operator, index);
    }

    @Override
    public String[] preferredLocations() {
      return homes;
    }
  }

  private final Share share;
  private final Settings settings;
  private final Allowance allowance;
  private final long[] next;
  private final int own;
  private final GenericInternalRow row = new GenericInternalRow(5);
  private int turn; // the partition to begin with, so that none comes last for ever
  private final long begun = System.nanoTime();
  private long due, ticked;
  private double linger = SOONEST_MICROS;

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

  /** Take up to a frame of records below `limit`; false if there is nothing to send. */
  private boolean take(long[] limit) {
    ByteBuffer frame = ByteBuffer.allocate(16 + 24 * own).order(ByteOrder.LITTLE_ENDIAN);
    frame.putLong(micros()).putLong(share.startMicros);
    Allowance job = limit == null ? allowance : null; // a micro-batch is bounded as it is
    int fitting = allowance.frameRecords();
    long room = Math.min(fitting, LARGEST);
    if (job != null) room = Math.min(room, job.credit());
    long before = room;
    if (room <= 0) return false;
    boolean ticks = settings.ticks && limit == null && settings.known();
    long each = Math.max(1, room / own);
    long[] there = limit == null ? settings.available(share.startMicros) : limit;
    boolean more = false;
    for (int i = 0; i < own; i++) {
      int p = share.index + ((turn + i) % own) * share.readers;
      long end = Math.min(there[p], next[p] + Math.min(each, room));
      more |= there[p] > end;
      if (end <= next[p]) {
        if (ticks && there[p] <= next[p]) frame.putLong(p).putLong(next[p]).putLong(next[p]); // there is no more
        continue;
      }
      frame.putLong(p).putLong(next[p]).putLong(end);
      room -= end - next[p];
      next[p] = end;
    }
    turn = (turn + 1) % Math.max(1, own);
    if (frame.position() == 16 || (room == before && !reached(ticked + TICK_MICROS))) return false;
    ticked = micros();
    if (job != null && room < before) {
      job.took(before - room);
      pace(before - room, more);
    }
    row.update(3, java.util.Arrays.copyOf(frame.array(), frame.position()));
    row.setInt(4, fitting);
    return true;
  }

  /** Real-time mode: when the next frame is due, by what there was for this one. */
  private void pace(long taken, boolean more) {
    long now = micros(), each = (long) linger;
    due = more ? 0 : now - now % each + each;
    double wanted = linger * Math.min(SLOWER, Math.max(FASTER, ENOUGH / taken));
    linger = Math.min(LATEST_MICROS * Math.sqrt(share.readers), Math.max(SOONEST_MICROS, wanted));
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

  /**
   * No record ends the epoch for this reader: when its time is up, or as soon as the job has another version. Its time
   * begins with its task: Spark counts from the planning of the epoch, and tasks that start late would read nothing. In
   * a paused epoch there is nothing to commit, and it lasts until the job begins.
   */
  @Override
  public RecordStatus nextWithTimeout(Long timeoutMs) throws IOException {
    long from = System.nanoTime(), most = Math.min(timeoutMs, Long.MAX_VALUE / 2_000_000) * 1_000_000;
    while (allowance.version(share.version) <= share.version && System.nanoTime() - from < most && !over()) {
      if (!share.paused && own > 0 && reached(due) && take(null))
        return RecordStatus.newStatusWithArrivalTimeMs(System.currentTimeMillis());
      long soon = (due - micros()) * 1_000;
      LockSupport.parkNanos(soon > 0 ? Math.min(NAP_NS, soon) : NAP_NS);
      if (Thread.interrupted()) throw new IOException("interrupted");
    }
    return RecordStatus.newStatusWithoutArrivalTime(false);
  }

  /** Whether it is that time by now; one that is far ahead is of before the clock was set back. */
  private static boolean reached(long at) {
    long left = at - micros();
    return left <= 0 || left > FAR_MICROS;
  }

  private boolean over() {
    return !share.paused && System.nanoTime() - begun > settings.epochNanos;
  }

  @Override
  public void close() {}
}

package dspkit;

import java.util.Collections;
import java.util.EnumSet;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.PartitionOffset;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.ReportsSourceMetrics;
import org.apache.spark.sql.connector.read.streaming.SupportsAdmissionControl;
import org.apache.spark.sql.connector.read.streaming.SupportsRealTimeMode;
import org.apache.spark.sql.sources.DataSourceRegister;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * A durable log of numbered records that fills at the pace of a trace, for micro-batches and real-time mode.
 *
 * <p>Record i is in partition i mod n, and is there from the moment at which the trace counts i + 1. The log holds
 * numbers only; what a record says is made from its number, in Python. A log outside (files, Redis, Kafka) is the same
 * without a trace: the driver says how far it is filled, and Python fetches what the numbers stand for. The readers, as many as the operator has
 * instances, share the partitions. A row is a frame: the stretches of the log that one reader has taken.
 */
public final class TraceSource implements TableProvider, DataSourceRegister {
  static final StructType SCHEMA =
      new StructType()
          .add("_to", DataTypes.IntegerType)
          .add("_from", DataTypes.IntegerType)
          .add("_p", DataTypes.IntegerType)
          .add("_frame", DataTypes.BinaryType)
          .add("_most", DataTypes.IntegerType);

  @Override
  public String shortName() {
    return "dspkit-trace";
  }

  @Override
  public StructType inferSchema(CaseInsensitiveStringMap options) {
    return SCHEMA;
  }

  @Override
  public Table getTable(StructType schema, Transform[] partitioning, Map<String, String> properties) {
    return new LogTable();
  }

  private static final class LogTable implements Table, SupportsRead {
    @Override
    public String name() {
      return "dspkit-trace";
    }

    @Override
    public StructType schema() {
      return SCHEMA;
    }

    @Override
    public Set<TableCapability> capabilities() {
      return EnumSet.of(TableCapability.MICRO_BATCH_READ);
    }

    @Override
    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
      return () ->
          new Scan() {
            @Override
            public StructType readSchema() {
              return SCHEMA;
            }

            @Override
            public MicroBatchStream toMicroBatchStream(String checkpoint) {
              return new Log(options);
            }
          };
    }
  }

  /** How far each partition is read. */
  static final class Position extends Offset {
    final long[] next;

    Position(long[] next) {
      this.next = next;
    }

    @Override
    public String json() {
      return java.util.Arrays.toString(next);
    }

    /** After a restart Spark hands over offsets of its own class that hold the text. */
    static Position of(Offset offset) {
      return offset instanceof Position ? (Position) offset : parse(offset.json());
    }

    static Position parse(String text) {
      String[] words = text.substring(text.indexOf('[') + 1, text.indexOf(']')).split(",");
      long[] next = new long[words.length];
      for (int i = 0; i < next.length; i++) next[i] = Long.parseLong(words[i].trim());
      return new Position(next);
    }
  }

  /** How far one reader got: of the partitions that are not its own it says -1. */
  static final class Part implements PartitionOffset {
    private static final long serialVersionUID = 1;
    final long[] next;

    Part(long[] next) {
      this.next = next;
    }
  }

  private static final class Log
      implements MicroBatchStream, SupportsRealTimeMode, SupportsAdmissionControl, ReportsSourceMetrics {
    private final TraceReader.Settings settings;
    private final long mostRecords;

    Log(CaseInsensitiveStringMap options) {
      settings = new TraceReader.Settings(options);
      mostRecords = options.getLong("max_batch_records", Long.MAX_VALUE / 2);
    }

    private Job job() {
      Job job = Job.get(settings.job);
      if (job == null) throw new IllegalStateException("dspkit: this source has no job that says how it runs");
      return job;
    }

    private InputPartition[] plan(long[] from, long[] to) {
      Job job = job();
      job.plan();
      InputPartition[] parts = new InputPartition[job.planned(settings.operator)];
      for (int i = 0; i < parts.length; i++)
        parts[i] = new TraceReader.Share(settings, i, parts.length, from, to, job);
      return parts;
    }

    @Override
    public Offset initialOffset() {
      return new Position(new long[settings.partitions]);
    }

    @Override
    public Offset latestOffset() {
      throw new UnsupportedOperationException("asked with a limit instead");
    }

    @Override
    public ReadLimit getDefaultReadLimit() {
      return ReadLimit.allAvailable();
    }

    @Override
    public Offset latestOffset(Offset start, ReadLimit limit) {
      long[] next = Position.of(start).next.clone();
      long most = Math.max(1, mostRecords / next.length);
      long[] there = settings.available(job().startMicros());
      if (!job().paused())
        for (int p = 0; p < next.length; p++) next[p] = Math.max(next[p], Math.min(there[p], next[p] + most));
      return new Position(next);
    }

    @Override
    public InputPartition[] planInputPartitions(Offset start, Offset end) {
      return plan(Position.of(start).next, Position.of(end).next);
    }

    @Override
    public InputPartition[] planInputPartitions(Offset start) {
      return plan(Position.of(start).next, null);
    }

    @Override
    public Offset mergeOffsets(PartitionOffset[] parts) {
      long[] next = new long[settings.partitions];
      for (PartitionOffset part : parts)
        for (int p = 0; p < next.length; p++) next[p] = Math.max(next[p], ((Part) part).next[p]);
      return new Position(next);
    }

    @Override
    public Map<String, String> metrics(Optional<Offset> latest) {
      Job job = Job.get(settings.job);
      if (latest.isEmpty() || job == null) return Collections.emptyMap();
      long lag = 0;
      long[] there = settings.available(job.startMicros()), next = Position.of(latest.get()).next;
      for (int p = 0; p < next.length; p++) lag += there[p] - next[p];
      Map<String, String> metrics = new HashMap<>();
      metrics.put("lag", Long.toString(Math.max(0, lag)));
      return metrics;
    }

    @Override
    public PartitionReaderFactory createReaderFactory() {
      return part -> new TraceReader((TraceReader.Share) part);
    }

    @Override
    public Offset deserializeOffset(String json) {
      return Position.parse(json);
    }

    @Override
    public void commit(Offset end) {}

    @Override
    public void stop() {}
  }
}

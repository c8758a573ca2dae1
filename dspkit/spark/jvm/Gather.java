package dspkit;

import java.io.Serializable;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.List;
import java.util.PriorityQueue;
import org.apache.spark.TaskContext;
import org.apache.spark.TaskContext$;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.MapInArrow;
import org.apache.spark.sql.catalyst.plans.physical.Partitioning;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.SparkStrategy;
import org.apache.spark.sql.execution.python.MapInArrowExec;
import org.apache.spark.util.TaskCompletionListener;
import scala.Function1;
import scala.collection.AbstractIterator;
import scala.collection.Iterator;
import scala.collection.immutable.IndexedSeq;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;
import scala.reflect.ClassTag$;

/**
 * The step in front of each operator's Python, in real-time mode: sends the frames that wait, at once and together.
 *
 * <p>Spark's writer asks for another row before it sends those that it has. So each stage would hold a frame until the
 * next one arrives. Here a thread waits for the rows, and the writer is told that there are no more as soon as none is
 * there yet: it sends what it has, asks again, and waits then.
 *
 * <p>A last row, for no operator, marks the true end of the input. Python fails without it: a writer that took a pause
 * for the end would lose records otherwise.
 */
public final class Gather extends SparkPlan {
  private static final long serialVersionUID = 1;
  private static final int END = -1; // as in exchange.py

  private final SparkPlan child;

  /** Public, with the fields as parameters: Spark copies plans by it. */
  public Gather(SparkPlan child) {
    this.child = child;
  }

  /** Give the strategy to a session, before its queries start: a query works in a copy of its session. */
  public static void install(SparkSession session) {
    var methods = ((org.apache.spark.sql.classic.SparkSession) session).experimental();
    var all = new ArrayList<SparkStrategy>(CollectionConverters.asJava(methods.extraStrategies()));
    if (all.stream().anyMatch(strategy -> strategy instanceof Planner)) return;
    all.add(new Planner());
    methods.extraStrategies_$eq(CollectionConverters.asScala((List<SparkStrategy>) all).toSeq());
  }

  private static final class Planner extends SparkStrategy {
    @Override
    public Seq<SparkPlan> apply(LogicalPlan plan) {
      List<SparkPlan> made = new ArrayList<>();
      if (plan instanceof MapInArrow map) {
        SparkPlan below = new Gather(planLater(map.child()));
        made.add(new MapInArrowExec(map.functionExpr(), map.output(), below, map.isBarrier(), map.profile()));
      }
      return CollectionConverters.asScala(made).toSeq();
    }
  }

  @Override
  public RDD<InternalRow> doExecute() {
    int operator = Placed.operator(child);
    Function1<Iterator<InternalRow>, Iterator<InternalRow>> waiting =
        (Function1<Iterator<InternalRow>, Iterator<InternalRow>> & Serializable) rows -> Waiting.of(rows, operator);
    return Placed.of(child.execute(), operator).mapPartitions(waiting, true, ClassTag$.MODULE$.apply(InternalRow.class));
  }

  @Override
  public Seq<Attribute> output() {
    return child.output();
  }

  @Override
  public Partitioning outputPartitioning() {
    return child.outputPartitioning();
  }

  @Override
  public Seq<SparkPlan> children() {
    return CollectionConverters.asScala(List.of(child)).toSeq();
  }

  @Override
  public SparkPlan withNewChildrenInternal(IndexedSeq<SparkPlan> fresh) {
    return new Gather(fresh.head());
  }

  @Override
  public int productArity() {
    return 1;
  }

  @Override
  public Object productElement(int i) {
    return child;
  }

  @Override
  public boolean canEqual(Object other) {
    return other instanceof Gather;
  }

  @Override
  public boolean equals(Object other) {
    return other instanceof Gather && ((Gather) other).child.equals(child);
  }

  @Override
  public int hashCode() {
    return 31 * child.hashCode() + 1;
  }

  /** The rows of one task as the writer sees them: `hasNext` is false once when none waits, and for good at the end. */
  private static final class Waiting extends AbstractIterator<InternalRow> {
    private static final int ROWS = 64; // that wait, beyond which the senders have to
    private static final long BYTES = 1 << 16, STOP_MS = 5_000;
    private static final long FLYING_BYTES = 1 << 23; // on their way, beyond which the senders have to wait, too

    private final ArrayDeque<InternalRow> rows = new ArrayDeque<>(); // guarded by itself, like what follows
    private final PriorityQueue<Flying> flying = new PriorityQueue<>(); // that are still on their way
    private long bytes, flyingBytes, number, last;
    private boolean over, stopped;
    private Throwable failed;

    private boolean paused = true, ended; // of the writer's thread alone

    /** A row that arrives at `due`; rows of one sender keep their order. */
    private record Flying(InternalRow row, long due, long number) implements Comparable<Flying> {
      @Override
      public int compareTo(Flying other) {
        return due != other.due ? Long.compare(due, other.due) : Long.compare(number, other.number);
      }
    }

    static Iterator<InternalRow> of(Iterator<InternalRow> rows, int operator) {
      Waiting made = new Waiting();
      TaskContext task = TaskContext.get();
      Links links = operator < 0 ? null : Links.of(task, operator);
      Thread thread = new Thread(() -> made.fill(rows, task, links), "dspkit-gather-" + task.partitionId());
      thread.setDaemon(true);
      // Listeners run in reverse order: the thread has ended before what it reads from is closed.
      task.addTaskCompletionListener((TaskCompletionListener) any -> made.stop(thread));
      thread.start();
      return made;
    }

    private void fill(Iterator<InternalRow> from, TaskContext task, Links links) {
      Throwable error = null;
      TaskContext$.MODULE$.setTaskContext(task);
      try {
        while (from.hasNext()) {
          InternalRow row = from.next().copy();
          long due = links == null ? 0 : links.due(row, size(row));
          if (!(due == 0 ? add(row) : launch(row, due))) return;
        }
        InternalRow end = new GenericInternalRow(new Object[] {END, END, 0, new byte[0], 0});
        if (!(links == null ? add(end) : launch(end, Math.max(last, System.nanoTime())))) return;
      } catch (Throwable any) {
        error = any; // which the writer throws
      } finally {
        TaskContext$.MODULE$.unset();
        synchronized (rows) {
          over = true;
          failed = error;
          rows.notifyAll();
        }
      }
    }

    private boolean full() {
      return rows.size() >= ROWS || bytes >= BYTES;
    }

    private boolean add(InternalRow row) throws InterruptedException {
      synchronized (rows) {
        while (!stopped && full()) rows.wait();
        if (stopped) return false;
        rows.add(row);
        bytes += size(row);
        if (rows.size() == 1) rows.notifyAll();
        return true;
      }
    }

    /** Whether a link has taken as much as it holds, or its first row cannot land. */
    private boolean jammed() {
      if (flying.isEmpty()) return false;
      return flyingBytes >= FLYING_BYTES || (full() && flying.peek().due <= System.nanoTime());
    }

    /** Let a row arrive later. A receiver or a link that does not keep up holds the senders up, as without a delay. */
    private boolean launch(InternalRow row, long due) throws InterruptedException {
      synchronized (rows) {
        while (!stopped && jammed()) rows.wait();
        if (stopped) return false;
        last = Math.max(last, due);
        flying.add(new Flying(row, due, number++));
        flyingBytes += size(row);
        rows.notifyAll();
        return true;
      }
    }

    /** Move what has arrived by now to the rows that wait. */
    private void land() {
      if (flying.isEmpty()) return;
      long now = System.nanoTime(), before = flying.size();
      while (!flying.isEmpty() && flying.peek().due <= now && !full()) {
        InternalRow row = flying.remove().row;
        rows.add(row);
        bytes += size(row);
        flyingBytes -= size(row);
      }
      if (flying.size() < before) rows.notifyAll();
    }

    private boolean isOver() {
      return over && flying.isEmpty();
    }

    /** Wait for a row that arrives, or that is on its way. */
    private void await() throws InterruptedException {
      if (flying.isEmpty()) rows.wait();
      else rows.wait(Math.max(1, (flying.peek().due - System.nanoTime()) / 1_000_000));
      land();
    }

    private static long size(InternalRow row) {
      return row instanceof UnsafeRow plain ? plain.getSizeInBytes() : row.getBinary(3).length;
    }

    private void stop(Thread thread) {
      synchronized (rows) {
        stopped = true;
        rows.notifyAll();
      }
      thread.interrupt();
      try {
        thread.join(STOP_MS);
      } catch (InterruptedException end) {
        Thread.currentThread().interrupt();
      }
    }

    @Override
    public boolean hasNext() {
      if (ended) return false;
      synchronized (rows) {
        land();
        if (rows.isEmpty() && !paused && !isOver()) {
          paused = true;
          return false;
        }
        try {
          while (rows.isEmpty() && !isOver() && !stopped) await();
        } catch (InterruptedException end) {
          Thread.currentThread().interrupt();
          throw new IllegalStateException("interrupted while waiting for frames", end);
        }
        paused = false;
        if (!rows.isEmpty()) return true;
        ended = true;
        if (failed != null) throw Waiting.<RuntimeException>as(failed);
        return false;
      }
    }

    @SuppressWarnings("unchecked")
    private static <E extends Throwable> E as(Throwable error) throws E {
      throw (E) error; // unchanged, whatever its kind: Spark looks at its class
    }

    @Override
    public InternalRow next() {
      synchronized (rows) {
        InternalRow row = rows.remove();
        bytes -= size(row);
        if (rows.size() < ROWS) rows.notifyAll();
        return row;
      }
    }
  }
}

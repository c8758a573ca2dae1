package dspkit;

import org.apache.spark.Partition;
import org.apache.spark.SparkContext;
import org.apache.spark.TaskContext;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.execution.SparkPlan;
import scala.collection.Iterator;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;
import scala.reflect.ClassTag$;

/**
 * The input of an operator whose instances prefer the executors that the deployment names. Spark waits for the slot of
 * a preferred executor (`spark.locality.wait`); the driver has made sure that there is one.
 */
final class Placed extends RDD<InternalRow> {
  private static final long serialVersionUID = 1;

  private final transient Job job; // which the driver asks, when it schedules the tasks
  private final int operator;

  private Placed(RDD<InternalRow> input, Job job, int operator) {
    super(input, ClassTag$.MODULE$.apply(InternalRow.class));
    this.job = job;
    this.operator = operator;
  }

  /** The input of an operator, with the places that the job wants; a source's log names them itself. */
  static RDD<InternalRow> of(RDD<InternalRow> input, int operator) {
    String id = SparkContext.getOrCreate().getLocalProperty("dspkit.job");
    Job job = id == null ? null : Job.get(Integer.parseInt(id));
    return job == null || operator < 0 ? input : new Placed(input, job, operator);
  }

  /**
   * The operator whose input `plan` is, or -1 for a source. The stages of a job are a line: the sources side by side,
   * then one operator after the other.
   */
  static int operator(SparkPlan plan) {
    int above = stages(plan);
    return above == 0 ? -1 : sources(plan) - 1 + above;
  }

  /** The most operators from a source to the end of `plan`. */
  private static int stages(SparkPlan plan) {
    int most = 0;
    for (SparkPlan child : CollectionConverters.asJava(plan.children())) most = Math.max(most, stages(child));
    return most + (plan instanceof Gather ? 1 : 0);
  }

  private static int sources(SparkPlan plan) {
    if (plan instanceof Gather && stages(plan) == 1) return 1;
    int count = 0;
    for (SparkPlan child : CollectionConverters.asJava(plan.children())) count += sources(child);
    return count;
  }

  @Override
  public Iterator<InternalRow> compute(Partition split, TaskContext context) {
    return parent().iterator(split, context);
  }

  @Override
  public Partition[] getPartitions() {
    return parent().partitions();
  }

  @Override
  public Seq<String> getPreferredLocations(Partition split) {
    return CollectionConverters.asScala(java.util.List.of(job.homes(operator, split.index()))).toSeq();
  }

  private RDD<InternalRow> parent() {
    return firstParent(ClassTag$.MODULE$.apply(InternalRow.class));
  }
}

package dspkit;

import java.util.List;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.RepartitionByExpression;
import org.apache.spark.sql.catalyst.rules.Rule;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractPartialFunction;

/** Puts the live parallelism in place of the placeholder partition counts, each time that Spark plans an epoch. */
public final class Rescale extends Rule<LogicalPlan> {
  /** Give the rule to a session, before its queries start: a query works in a copy of its session. */
  public static void install(SparkSession session) {
    var methods = ((org.apache.spark.sql.classic.SparkSession) session).experimental();
    var rules = CollectionConverters.asJava(methods.extraOptimizations());
    if (rules.stream().anyMatch(rule -> rule instanceof Rescale)) return;
    var more = new java.util.ArrayList<>(rules);
    more.add(new Rescale());
    methods.extraOptimizations_$eq(CollectionConverters.asScala((List<Rule<LogicalPlan>>) more).toSeq());
  }

  private static int count(LogicalPlan plan) {
    if (!(plan instanceof RepartitionByExpression shuffle)) return 0;
    return shuffle.optNumPartitions().isDefined() ? ((Number) shuffle.optNumPartitions().get()).intValue() : 0;
  }

  @Override
  public LogicalPlan apply(LogicalPlan plan) {
    return plan.transformUp(
        new AbstractPartialFunction<LogicalPlan, LogicalPlan>() {
          @Override
          public boolean isDefinedAt(LogicalPlan node) {
            return count(node) >= Job.FIRST;
          }

          @Override
          @SuppressWarnings("unchecked")
          public <A extends LogicalPlan, B> B applyOrElse(A node, scala.Function1<A, B> otherwise) {
            if (!isDefinedAt(node)) return otherwise.apply(node);
            RepartitionByExpression shuffle = (RepartitionByExpression) (LogicalPlan) node;
            int number = count(node) - Job.FIRST;
            Job job = Job.get(number / Job.STRIDE);
            if (job == null) throw new IllegalStateException("dspkit: this query has no job that says how it runs");
            job.plan();
            Option<Object> k = Option.apply(job.planned(number % Job.STRIDE));
            return (B)
                new RepartitionByExpression(
                    shuffle.partitionExpressions(), shuffle.child(), k, shuffle.optAdvisoryPartitionSize());
          }
        });
  }
}

package dspkit;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Repartition;
import org.apache.spark.sql.catalyst.plans.logical.RepartitionByExpression;
import org.apache.spark.sql.catalyst.plans.logical.Sort;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.execution.datasources.v2.WriteToDataSourceV2;
import org.apache.spark.sql.execution.streaming.sources.WriteToMicroBatchDataSource;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractPartialFunction;

/**
 * A rule of the optimiser that steers somebody else's query from batch to batch, installed in the query's own session
 * while it runs.
 *
 * <p>`tasks` runs the last stage in that many tasks, by a narrow coalesce above it: one task then works through several
 * state partitions, whose number and files stay as they are. `shuffle` is the number of partitions of the user's own
 * repartitions. 0 leaves them as they are. A plan that sorts is left alone: rows of several partitions in one task would
 * no longer be in the order that its sink expects. Only the driver uses this class.
 */
public final class Steer extends Rule<LogicalPlan> {
  private volatile int tasks, shuffle;

  public void set(int tasks, int shuffle) {
    this.tasks = tasks;
    this.shuffle = shuffle;
  }

  public static Steer install(SparkSession session) {
    Steer mine = new Steer();
    List<Rule<LogicalPlan>> rules = rules(session);
    rules.add(mine);
    set(session, rules);
    return mine;
  }

  /** Removes this rule: the session is as it was before. */
  public void remove(SparkSession session) {
    List<Rule<LogicalPlan>> rules = rules(session);
    rules.remove(this);
    set(session, rules);
  }

  private static List<Rule<LogicalPlan>> rules(SparkSession session) {
    var methods = ((org.apache.spark.sql.classic.SparkSession) session).experimental();
    return new ArrayList<>(CollectionConverters.asJava(methods.extraOptimizations()));
  }

  private static void set(SparkSession session, List<Rule<LogicalPlan>> rules) {
    var methods = ((org.apache.spark.sql.classic.SparkSession) session).experimental();
    methods.extraOptimizations_$eq(CollectionConverters.asScala(rules).toSeq());
  }

  @Override
  public LogicalPlan apply(LogicalPlan plan) {
    if (!plan.isStreaming() && !writes(plan)) return plan;
    LogicalPlan made = shuffle > 0 ? shuffled(plan) : plan;
    return tasks > 0 ? coalesced(made) : made;
  }

  /** Rules of users see a write as one of these. A sink of the first API has no such node. */
  private static boolean writes(LogicalPlan plan) {
    return plan instanceof WriteToDataSourceV2 || plan instanceof WriteToMicroBatchDataSource;
  }

  /** The write must stay the root: below a coalesce it would run as one command, without the stages. */
  private LogicalPlan coalesced(LogicalPlan plan) {
    LogicalPlan top = writes(plan) ? plan.children().head() : plan;
    if (top instanceof Repartition there && !there.shuffle() || sorts(top)) return plan;
    LogicalPlan fewer = new Repartition(tasks, false, top);
    if (!writes(plan)) return fewer;
    return (LogicalPlan) plan.withNewChildren(CollectionConverters.asScala(List.of(fewer)).toIndexedSeq());
  }

  private static boolean sorts(LogicalPlan plan) {
    if (plan instanceof Sort) return true;
    for (LogicalPlan child : CollectionConverters.asJava(plan.children())) if (sorts(child)) return true;
    return false;
  }

  private LogicalPlan shuffled(LogicalPlan plan) {
    return plan.transformUp(
        new AbstractPartialFunction<LogicalPlan, LogicalPlan>() {
          @Override
          public boolean isDefinedAt(LogicalPlan node) {
            return node instanceof Repartition r
                ? r.shuffle() && r.numPartitions() != shuffle
                : node instanceof RepartitionByExpression e
                    && e.optNumPartitions().isDefined()
                    && !e.optNumPartitions().get().equals(shuffle);
          }

          @Override
          @SuppressWarnings("unchecked")
          public <A extends LogicalPlan, B> B applyOrElse(A node, scala.Function1<A, B> otherwise) {
            LogicalPlan it = node;
            if (!isDefinedAt(it)) return otherwise.apply(node);
            if (it instanceof Repartition r) return (B) new Repartition(shuffle, true, r.child());
            RepartitionByExpression e = (RepartitionByExpression) it;
            Option<Object> k = Option.apply((Object) shuffle);
            return (B)
                new RepartitionByExpression(e.partitionExpressions(), e.child(), k, e.optAdvisoryPartitionSize());
          }
        });
  }
}

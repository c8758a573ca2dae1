package dspkit;

import java.io.Serializable;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.List;
import java.util.function.Consumer;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.api.java.UDF1;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.BoundReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Generator;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.JoinedRow;
import org.apache.spark.sql.catalyst.expressions.Nondeterministic;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.Unevaluable;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.Generate;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.execution.LogicalRDD;
import org.apache.spark.sql.execution.arrow.ArrowConverters$;
import org.apache.spark.sql.functions;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractPartialFunction;

/**
 * What a query makes of a frame's records: an operator that is an SQL or DataFrame expression.
 *
 * <p>Spark analyses and optimises the query over an empty table; what remains must be selecting, filtering and exploding,
 * one record at a time. It is run here frame by frame with Spark's own compiled expressions. The two stamps of a record
 * stay at the end of each row. The answer is a frame behind three numbers: nanoseconds this took, those of a core, and
 * records that came.
 */
public final class Select implements UDF1<byte[], byte[]> {
  private static final long serialVersionUID = 1;
  private static final String FAILED = "dspkit-operator-failed "; // as in errors.py
  private static final ThreadMXBean THREADS = ManagementFactory.getThreadMXBean();

  private final String operator;
  private final StructType input, output;
  private final List<Step> steps = new ArrayList<>();
  private transient UnsafeProjection whole;

  /** One step of the query: takes a row, and hands on what becomes of it. */
  private interface Step extends Serializable {
    void take(InternalRow row, Consumer<InternalRow> then);
  }

  private Select(String operator, StructType input, Dataset<Row> query) {
    this.operator = operator;
    this.input = stamped(input);
    this.output = stamped(query.schema());
    compile(((org.apache.spark.sql.classic.Dataset<Row>) query).queryExecution().optimizedPlan());
  }

  /** Make the query known to a session as a function `name` of a frame. */
  public static void register(SparkSession session, String name, String operator, StructType in, Dataset<Row> query) {
    Select select = new Select(operator, in, query);
    session.udf().register(name, functions.udf(select, DataTypes.BinaryType).asNondeterministic());
  }

  private static StructType stamped(StructType schema) {
    return schema.add("_event", DataTypes.LongType).add("_read", DataTypes.LongType);
  }

  private List<Attribute> compile(LogicalPlan plan) {
    if (plan instanceof LogicalRDD) return CollectionConverters.asJava(plan.output());
    if (plan instanceof Project project) {
      List<Attribute> in = compile(project.child());
      List<Expression> made = new ArrayList<>();
      project.projectList().foreach(e -> made.add(bound((Expression) e, in)));
      made.addAll(stamps(in));
      steps.add(new Selecting(made));
    } else if (plan instanceof Filter filter) {
      List<Attribute> in = compile(filter.child());
      steps.add(new Filtering(bound(filter.condition(), in)));
    } else if (plan instanceof Generate generate) {
      List<Attribute> in = compile(generate.child());
      List<Expression> kept = new ArrayList<>();
      generate.requiredChildOutput().foreach(a -> kept.add(bound(a, in)));
      Expression generator = bound((Expression) generate.generator(), in);
      steps.add(new Generating(generator, kept, stamps(in), generate.outer(), generate.generatorOutput().size()));
    } else {
      throw new IllegalArgumentException("the step " + plan.nodeName());
    }
    return CollectionConverters.asJava(plan.output());
  }

  private static List<Expression> stamps(List<Attribute> in) {
    return List.of(
        new BoundReference(in.size(), DataTypes.LongType, false),
        new BoundReference(in.size() + 1, DataTypes.LongType, false));
  }

  /** The expression with places in the row instead of names. */
  private static Expression bound(Expression expression, List<Attribute> in) {
    Expression made =
        (Expression)
            expression.transform(
                new AbstractPartialFunction<Expression, Expression>() {
                  @Override
                  public boolean isDefinedAt(Expression e) {
                    return e instanceof AttributeReference;
                  }

                  @Override
                  @SuppressWarnings("unchecked")
                  public <A extends Expression, B> B applyOrElse(A e, scala.Function1<A, B> otherwise) {
                    if (!isDefinedAt(e)) return otherwise.apply(e);
                    Attribute wanted = (Attribute) (Expression) e;
                    for (int i = 0; i < in.size(); i++)
                      if (in.get(i).exprId().equals(wanted.exprId()))
                        return (B) new BoundReference(i, wanted.dataType(), wanted.nullable());
                    throw new IllegalArgumentException("the column " + wanted.name());
                  }
                });
    check(made);
    return made;
  }

  private static void check(Expression expression) {
    if (expression instanceof Unevaluable) throw new IllegalArgumentException("the expression " + expression.sql());
    expression.children().foreach(child -> {
      check(child);
      return null;
    });
  }

  private static UnsafeProjection projection(List<Expression> expressions) {
    UnsafeProjection made = UnsafeProjection.create(CollectionConverters.asScala(expressions).toSeq());
    made.initialize(0);
    return made;
  }

  private static final class Selecting implements Step {
    private final ArrayList<Expression> expressions;
    private transient UnsafeProjection made;

    Selecting(List<Expression> expressions) {
      this.expressions = new ArrayList<>(expressions);
    }

    @Override
    public void take(InternalRow row, Consumer<InternalRow> then) {
      if (made == null) made = projection(expressions);
      then.accept(made.apply(row));
    }
  }

  private static final class Filtering implements Step {
    private final Expression condition;
    private transient UnsafeProjection made;

    Filtering(Expression condition) {
      this.condition = condition;
    }

    @Override
    public void take(InternalRow row, Consumer<InternalRow> then) {
      if (made == null) made = projection(List.of(condition));
      InternalRow answer = made.apply(row);
      if (!answer.isNullAt(0) && answer.getBoolean(0)) then.accept(row);
    }
  }

  private static final class Generating implements Step {
    private final Expression generator;
    private final ArrayList<Expression> kept, stamps;
    private final boolean outer;
    private final int width;
    private transient UnsafeProjection left, right;

    Generating(Expression generator, List<Expression> kept, List<Expression> stamps, boolean outer, int width) {
      this.generator = generator;
      this.kept = new ArrayList<>(kept);
      this.stamps = new ArrayList<>(stamps);
      this.outer = outer;
      this.width = width;
    }

    @Override
    public void take(InternalRow row, Consumer<InternalRow> then) {
      if (left == null) {
        generator.foreach(e -> {
          if (e instanceof Nondeterministic n) n.initialize(0);
          return null;
        });
        left = projection(kept);
        right = projection(stamps);
      }
      InternalRow before = left.apply(row), after = right.apply(row);
      var made = ((Generator) generator).eval(row).iterator();
      if (outer && !made.hasNext()) then.accept(joined(before, new GenericInternalRow(width), after));
      while (made.hasNext()) then.accept(joined(before, made.next(), after));
    }

    private static InternalRow joined(InternalRow a, InternalRow b, InternalRow c) {
      return new JoinedRow(new JoinedRow(a, b), c);
    }
  }

  @Override
  public byte[] call(byte[] frame) {
    long began = System.nanoTime(), worked = THREADS.getCurrentThreadCpuTime();
    try {
      var one = CollectionConverters.asScala(List.of(frame).iterator());
      var rows = ArrowConverters$.MODULE$.fromBatchIterator(one, input, "UTC", false, false, null);
      ArrayList<InternalRow> made = new ArrayList<>();
      long came = 0;
      for (; rows.hasNext(); came++) push(rows.next(), 0, made);
      byte[] packed = new byte[0];
      if (!made.isEmpty()) {
        var all = CollectionConverters.asScala(made.iterator());
        var batches =
            ArrowConverters$.MODULE$.toBatchIterator(all, output, made.size(), "UTC", false, false, null);
        packed = batches.next();
        batches.hasNext(); // it lets go of its memory when it is asked for more
      }
      ByteBuffer answer = ByteBuffer.allocate(24 + packed.length).order(ByteOrder.LITTLE_ENDIAN);
      answer.putLong(System.nanoTime() - began).putLong(THREADS.getCurrentThreadCpuTime() - worked);
      return answer.putLong(came).put(packed).array();
    } catch (RuntimeException error) {
      throw new IllegalStateException(FAILED + "[" + quoted(operator) + "," + quoted(error.toString()) + "]", error);
    }
  }

  private void push(InternalRow row, int step, List<InternalRow> made) {
    if (step == steps.size()) made.add(owned(row));
    else steps.get(step).take(row, next -> push(next, step + 1, made));
  }

  /** A row that stays as it is when the next one is made; Spark's own copy of a column's list stops at a null in it. */
  private InternalRow owned(InternalRow row) {
    if (whole == null) whole = UnsafeProjection.create(output);
    return whole.apply(row).copy();
  }

  private static String quoted(String text) {
    StringBuilder made = new StringBuilder("\"");
    for (char c : text.toCharArray()) {
      if (c == '"' || c == '\\') made.append('\\').append(c);
      else if (c < ' ') made.append(String.format("\\u%04x", (int) c));
      else made.append(c);
    }
    return made.append('"').toString();
  }
}

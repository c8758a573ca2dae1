package dspkit;

import java.io.IOException;
import java.io.InputStream;
import java.lang.reflect.InvocationTargetException;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import org.apache.spark.TaskContext;
import org.apache.spark.network.TransportContext;
import org.apache.spark.shuffle.ShuffleHandle;
import org.apache.spark.shuffle.ShuffleReadMetricsReporter;
import org.apache.spark.shuffle.ShuffleReader;
import org.apache.spark.shuffle.ShuffleWriteMetricsReporter;
import org.apache.spark.shuffle.ShuffleWriter;
import org.apache.spark.shuffle.streaming.StreamingShuffleManager;
import org.apache.spark.util.ErrorNotifier;
import org.apache.xbean.asm9.ClassReader;
import org.apache.xbean.asm9.ClassVisitor;
import org.apache.xbean.asm9.ClassWriter;
import org.apache.xbean.asm9.MethodVisitor;
import org.apache.xbean.asm9.Opcodes;
import org.apache.xbean.asm9.commons.ClassRemapper;
import org.apache.xbean.asm9.commons.SimpleRemapper;
import scala.Option;

/**
 * Spark's streaming shuffle with a {@link PrivateTransport}: the setting `spark.shuffle.manager.incremental`.
 *
 * <p>Spark's writer listens on all interfaces and serves whoever connects, and no setting changes that. Writer and
 * reader each make their TransportContext in a private method, so no subclass can replace it. Their classes are
 * therefore defined a second time, from Spark's own bytes, with PrivateTransport in the place of TransportContext; no
 * other instruction changes. If a release of Spark uses TransportContext in another way, this manager refuses to start.
 */
public final class Exchange extends StreamingShuffleManager {
  private static final String PACKAGE = "org.apache.spark.shuffle.streaming.";
  private static final String TRANSPORT = "org/apache/spark/network/TransportContext";
  private static final String MAKE = "<init>(Lorg/apache/spark/network/util/TransportConf;Lorg/apache/spark/network/server/RpcHandler;)V";
  private static final Map<String, Set<String>> USES =
      Map.of(
          PACKAGE + "StreamingShuffleWriter",
          Set.of(MAKE, "createServer()Lorg/apache/spark/network/server/TransportServer;"),
          PACKAGE + "StreamingShuffleReader",
          Set.of(MAKE, "createClientFactory()Lorg/apache/spark/network/client/TransportClientFactory;"));

  private final Class<?> writer, reader;

  public Exchange() throws ReflectiveOperationException, IOException {
    this(Exchange.class.getClassLoader());
  }

  /** With the classes of Spark that `spark` finds; a test passes one that finds other bytes. */
  Exchange(ClassLoader spark) throws ReflectiveOperationException, IOException {
    for (String name : USES.keySet()) {
      Set<String> uses = uses(bytes(spark, name));
      if (!uses.equals(USES.get(name))) {
        throw new IllegalStateException(
            name + " of Spark " + org.apache.spark.package$.MODULE$.SPARK_VERSION() + " uses TransportContext as "
                + uses + "; expected " + new TreeSet<>(USES.get(name))
                + "; use the Spark that dspkit is made for, or mode=\"microbatch\"");
      }
    }
    Redirected classes = new Redirected(spark);
    writer = classes.loadClass(PACKAGE + "StreamingShuffleWriter");
    reader = classes.loadClass(PACKAGE + "StreamingShuffleReader");
  }

  @Override
  @SuppressWarnings("unchecked")
  public <K, V> ShuffleWriter<K, V> getWriter(
      ShuffleHandle handle, long mapId, TaskContext context, ShuffleWriteMetricsReporter metrics) {
    Class<?>[] types = {ShuffleHandle.class, long.class, TaskContext.class, Option.class, ErrorNotifier.class};
    return (ShuffleWriter<K, V>) make(writer, types, handle, mapId, context, Option.empty(), new ErrorNotifier());
  }

  @Override
  @SuppressWarnings("unchecked")
  public <K, C> ShuffleReader<K, C> getReader(
      ShuffleHandle handle,
      int startMapIndex,
      int endMapIndex,
      int startPartition,
      int endPartition,
      TaskContext context,
      ShuffleReadMetricsReporter metrics) {
    Class<?>[] types = {ShuffleHandle.class, TaskContext.class, Option.class, ErrorNotifier.class};
    return (ShuffleReader<K, C>) make(reader, types, handle, context, Option.empty(), new ErrorNotifier());
  }

  private static Object make(Class<?> kind, Class<?>[] types, Object... values) {
    try {
      return kind.getConstructor(types).newInstance(values);
    } catch (InvocationTargetException error) {
      if (error.getCause() instanceof RuntimeException cause) throw cause;
      if (error.getCause() instanceof Error cause) throw cause;
      throw new IllegalStateException(error.getCause());
    } catch (ReflectiveOperationException error) {
      throw new IllegalStateException(error);
    }
  }

  private static byte[] bytes(ClassLoader spark, String name) throws IOException {
    try (InputStream file = spark.getResourceAsStream(name.replace('.', '/') + ".class")) {
      if (file == null) throw new IOException("no class file of " + name);
      return file.readAllBytes();
    }
  }

  /** The constructors and methods of TransportContext that a class calls. */
  private static Set<String> uses(byte[] code) {
    Set<String> found = new TreeSet<>();
    ClassVisitor calls =
        new ClassVisitor(Opcodes.ASM9) {
          @Override
          public MethodVisitor visitMethod(int access, String name, String type, String signature, String[] throwing) {
            return new MethodVisitor(Opcodes.ASM9) {
              @Override
              public void visitMethodInsn(int code, String owner, String name, String type, boolean ofInterface) {
                if (owner.equals(TRANSPORT)) found.add(name + type);
              }
            };
          }
        };
    new ClassReader(code).accept(calls, ClassReader.SKIP_DEBUG);
    return found;
  }

  /** Spark's classes, of which writer and reader with all classes inside them are copies with another transport. */
  private static final class Redirected extends ClassLoader {
    Redirected(ClassLoader spark) {
      super(spark);
    }

    @Override
    protected Class<?> loadClass(String name, boolean resolve) throws ClassNotFoundException {
      int inner = name.indexOf('$');
      if (!USES.containsKey(inner < 0 ? name : name.substring(0, inner))) return super.loadClass(name, resolve);
      synchronized (getClassLoadingLock(name)) {
        Class<?> known = findLoadedClass(name);
        if (known != null) return known;
        try {
          ClassWriter copy = new ClassWriter(0);
          String ours = PrivateTransport.class.getName().replace('.', '/');
          new ClassReader(bytes(getParent(), name))
              .accept(new ClassRemapper(copy, new SimpleRemapper(TRANSPORT, ours)), 0);
          byte[] code = copy.toByteArray();
          return defineClass(name, code, 0, code.length, TransportContext.class.getProtectionDomain());
        } catch (IOException error) {
          throw new ClassNotFoundException(name, error);
        }
      }
    }
  }
}

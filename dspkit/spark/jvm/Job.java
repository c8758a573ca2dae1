package dspkit;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.nio.file.StandardCopyOption;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import java.util.zip.CRC32;
import org.apache.spark.SparkContext;

/**
 * One running query of ours, in the driver: the parallelism that is wanted of each operator, and what each epoch runs.
 *
 * <p>An epoch is a micro-batch, or one stretch of real-time mode. Whenever Spark plans one, {@link #plan} fixes what it
 * runs, gives it a token of its own, and writes both to {@code epochs/<number>.json} before a task starts. The token
 * names the epoch's state files. Spark plans an epoch again only while it is not committed, so once an epoch is
 * committed the file names the state that belongs to it, however often it was tried before, and with whatever
 * parallelism.
 */
public final class Job implements Allowance {
  static final int FIRST = 1_000_000, STRIDE = 1_000; // placeholder partition counts: FIRST + STRIDE * job + operator
  private static final int KEPT = 4; // epochs whose files are kept: Spark may go back to the last committed one
  private static final Map<Integer, Job> JOBS = new ConcurrentHashMap<>();

  private final int id;
  private final Path folder;
  private final int[] wanted;
  private int[] planned;
  private String[][] homes = {}; // by operator and instance: the executor that it is to run on; empty for any
  private long epoch = -1;
  private String plan;
  private volatile long version = 1, applied = 0;
  private volatile boolean paused;
  private volatile long startMicros;
  private volatile int frameRecords = 64;
  private volatile String links = "";
  private final Map<Integer, long[]> filled = new ConcurrentHashMap<>();
  private final AtomicLong credit = new AtomicLong(512); // until flow control has spoken

  private Job(int id, String folder, int[] wanted, String homes) {
    this.id = id;
    this.homes = parsed(homes);
    this.folder = Paths.get(folder);
    this.wanted = wanted;
    this.planned = wanted.clone();
  }

  /**
   * A run of query `id`; `parallelism` is of each operator, parted by commas. `homes` has the executor of each of its
   * instances, parted by commas, of one operator after the other, parted by semicolons; it is empty where Spark chooses.
   * The logs begin at `startMicros`.
   */
  public static Job open(int id, String folder, String parallelism, String homes, long startMicros, boolean paused) {
    String[] words = parallelism.split(",");
    int[] wanted = new int[words.length];
    for (int i = 0; i < words.length; i++) wanted[i] = Integer.parseInt(words[i]);
    Job job = new Job(id, folder, wanted, homes);
    job.startMicros = startMicros;
    job.paused = paused;
    JOBS.put(id, job);
    return job;
  }

  /** The job of that number, or null: in an executor of its own there is none, only its version. */
  static Job get(int id) {
    return JOBS.get(id);
  }

  /** Let the logs of a job that was opened paused begin. */
  public synchronized void begin(long micros) {
    startMicros = micros;
    paused = false;
    ++version;
  }

  public void close() {
    JOBS.remove(id, this);
  }

  /** Change what the next epoch runs, whenever that begins. */
  public synchronized void want(String parallelism, String where) {
    homes = parsed(where);
    String[] words = parallelism.split(",");
    for (int i = 0; i < wanted.length; i++) wanted[i] = Integer.parseInt(words[i]);
  }

  /** Change what shall run, and end the present epoch at once; the version to wait for. */
  public synchronized long rescale(String parallelism, String where, boolean pause) {
    want(parallelism, where);
    paused = pause;
    return ++version;
  }

  /** The links between workers from the next epoch on: sender, receiver, seconds, bytes/s, parted by semicolons. */
  public void links(String described) {
    links = described;
    Pings.links(described);
  }

  private static String[][] parsed(String homes) {
    String[] operators = homes.split(";", -1);
    String[][] parsed = new String[operators.length][];
    for (int i = 0; i < parsed.length; i++) parsed[i] = operators[i].split(",", -1);
    return parsed;
  }

  /** The executors that an instance is to run on, as Spark names them to its scheduler: one, or none for any. */
  synchronized String[] homes(int operator, int instance) {
    boolean named = operator < homes.length && instance < homes[operator].length && !homes[operator][instance].isEmpty();
    return named ? new String[] {"executor_" + homes[operator][instance]} : new String[0];
  }

  /** How many records each partition of the log of source `operator` has by now; parted by commas. */
  public void filled(int operator, String counts) {
    String[] words = counts.split(",");
    long[] upto = new long[words.length];
    for (int p = 0; p < upto.length; p++) upto[p] = Long.parseLong(words[p]);
    filled.put(operator, upto);
  }

  /** The same; null as long as nobody has said it. */
  long[] filled(int operator) {
    return filled.get(operator);
  }

  /** Of all jobs and sources. */
  static Map<String, long[]> filled() {
    Map<String, long[]> all = new java.util.HashMap<>();
    JOBS.forEach((id, job) -> job.filled.forEach((operator, upto) -> all.put(id + "." + operator, upto)));
    return all;
  }

  /** How many records the sources may take from now on, until this is said again, and how many in one frame. */
  public void allow(long records, int inOneFrame) {
    credit.set(records);
    frameRecords = inOneFrame;
  }

  @Override
  public int frameRecords() {
    return frameRecords;
  }

  @Override
  public long credit() {
    return credit.get();
  }

  @Override
  public void took(long records) {
    credit.addAndGet(-records);
  }

  @Override
  public long version(long otherwise) {
    return version;
  }

  /** The newest version that an epoch was planned with. */
  public long applied() {
    return applied;
  }

  public synchronized long epoch() {
    return epoch;
  }

  long startMicros() {
    return startMicros;
  }

  boolean paused() {
    return paused;
  }

  synchronized int planned(int operator) {
    return planned[operator];
  }

  /** To an executor that wishes to take so many records of each job: version, records granted, records in a frame. */
  static Object answer(Map<Integer, Long> wishes) {
    java.util.HashMap<Integer, long[]> answer = new java.util.HashMap<>();
    wishes.forEach(
        (id, wish) -> {
          Job job = JOBS.get(id);
          if (job == null) return;
          long before = job.credit.getAndUpdate(left -> left - Math.max(0, Math.min(wish, left)));
          answer.put(id, new long[] {job.version, Math.max(0, Math.min(wish, before)), job.frameRecords});
        });
    return answer;
  }

  /** Fix what the epoch that this thread is planning runs; the first call for an epoch decides. */
  synchronized void plan() {
    SparkContext spark = SparkContext.getOrCreate();
    String number = spark.getLocalProperty("streaming.sql.batchId");
    if (number == null) return; // no streaming query: somebody looks at the plan
    long now = Long.parseLong(number);
    if (now != epoch || plan == null) {
      planned = wanted.clone();
      String token = now + "-" + UUID.randomUUID().toString().substring(0, 8);
      StringBuilder k = new StringBuilder();
      for (int each : planned) k.append(k.length() == 0 ? "" : ",").append(each);
      CRC32 sum = new CRC32(); // as in state.py
      sum.update((now + " " + token + " " + k).getBytes(StandardCharsets.UTF_8));
      String own =
          "{\"epoch\":" + now + ",\"token\":\"" + token + "\",\"k\":[" + k + "],\"sum\":" + sum.getValue();
      try {
        Files.createDirectories(folder.resolve("epochs"));
        Path before = folder.resolve("epochs").resolve((now - 1) + ".json");
        String previous = Files.exists(before) ? Files.readString(before) : "null";
        write(folder.resolve("epochs").resolve(now + ".json"), own + "}");
        plan = own + ",\"previous\":" + previous + "}";
        clean(now - KEPT);
      } catch (IOException error) {
        throw new UncheckedIOException(error);
      }
      epoch = now;
      applied = version;
    }
    spark.setLocalProperty("dspkit.plan", plan);
    spark.setLocalProperty("dspkit.job", Integer.toString(id));
    spark.setLocalProperty("dspkit.links", links);
  }

  private static void write(Path path, String text) throws IOException {
    Path fresh = path.resolveSibling(path.getFileName() + "." + UUID.randomUUID());
    Files.write(fresh, text.getBytes(StandardCharsets.UTF_8));
    Checkpoints.synchronise(fresh);
    Files.move(fresh, path, StandardCopyOption.ATOMIC_MOVE, StandardCopyOption.REPLACE_EXISTING);
    Checkpoints.synchronise(path.getParent());
  }

  /** Remove the files of all epochs up to `last`, tries that came to nothing included. */
  private void clean(long last) throws IOException {
    remove(folder.resolve("epochs"), last, ".");
    remove(folder.resolve("state"), last, "-");
  }

  private static void remove(Path folder, long last, String end) throws IOException {
    if (!Files.isDirectory(folder)) return;
    try (var names = Files.list(folder)) {
      for (Path path : (Iterable<Path>) names::iterator) {
        String name = path.getFileName().toString();
        int digits = name.indexOf(end);
        if (digits <= 0 || !name.substring(0, digits).matches("\\d+")) continue;
        if (Long.parseLong(name.substring(0, digits)) > last) continue;
        if (Files.isDirectory(path)) {
          try (var files = Files.list(path)) {
            for (Path file : (Iterable<Path>) files::iterator) Files.deleteIfExists(file);
          }
        }
        Files.deleteIfExists(path);
      }
    }
  }
}

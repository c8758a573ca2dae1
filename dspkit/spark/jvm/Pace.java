package dspkit;

import java.lang.reflect.Field;
import org.apache.spark.util.Clock;

/**
 * The clock of a stock query's trigger, which waits for the next batch with it: the wait can be held, so that the query
 * is certain to be between two batches, and made shorter. Spark's own clock can do neither, so that a wait of an hour
 * could not be taken back. A hold ends by itself, whatever becomes of the one who asked for it.
 */
public final class Pace implements Clock {
  private final Clock real;
  private final Object trigger;
  private final Field field;
  private long target = Long.MIN_VALUE, heldUntil = Long.MIN_VALUE; // milliseconds; guarded by this
  private boolean waits;

  private Pace(Object trigger, Field field) throws IllegalAccessException {
    this.trigger = trigger;
    this.field = field;
    this.real = (Clock) field.get(trigger);
  }

  /** Gives a ProcessingTimeExecutor this clock; a wait that has begun ends by the former one. */
  public static Pace install(Object trigger) throws ReflectiveOperationException {
    Field field = trigger.getClass().getDeclaredField("clock");
    field.setAccessible(true);
    Pace mine = new Pace(trigger, field);
    field.set(trigger, mine);
    return mine;
  }

  /** Gives the trigger its former clock again. */
  public synchronized void remove() throws IllegalAccessException {
    field.set(trigger, real);
    release();
  }

  /** Begins no batch for so many milliseconds at most. */
  public synchronized void hold(long ms) {
    heldUntil = real.getTimeMillis() + ms;
  }

  public synchronized void release() {
    heldUntil = Long.MIN_VALUE;
    notifyAll();
  }

  /** Lets a wait that has begun end at this time, if that is sooner. */
  public synchronized void sooner(long time) {
    target = Math.min(target, time);
    notifyAll();
  }

  /** Whether the query waits in this clock and cannot begin a batch for some seconds. */
  public synchronized boolean parked() {
    return waits && heldUntil - real.getTimeMillis() > 5_000;
  }

  /** The time until which the query waits; 0 while it does not. */
  public synchronized long waitsUntil() {
    return waits ? target : 0;
  }

  @Override
  public long getTimeMillis() {
    return real.getTimeMillis();
  }

  @Override
  public long nanoTime() {
    return real.nanoTime();
  }

  @Override
  public synchronized long waitTillTime(long time) {
    target = time;
    waits = true;
    try {
      for (long left; (left = Math.max(target, heldUntil) - real.getTimeMillis()) > 0; ) wait(left);
    } catch (InterruptedException stopped) {
      throw Pace.<RuntimeException>unchanged(stopped); // Spark knows a stop by this very exception
    } finally {
      waits = false;
    }
    return real.getTimeMillis();
  }

  @SuppressWarnings("unchecked")
  private static <E extends Throwable> E unchanged(Throwable error) throws E {
    throw (E) error;
  }
}

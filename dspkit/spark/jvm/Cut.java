package dspkit;

import org.apache.spark.sql.execution.datasources.v2.LowLatencyClock;
import org.apache.spark.util.Clock;
import org.apache.spark.util.SystemClock;

/**
 * Ends the present batch of real-time queries early: the clock that their readers look at jumps ahead and stays ahead, so
 * that later batches, planned by the same clock, last as long as ever. It is that of this process: of the driver, whose
 * threads are the tasks of a local master.
 */
public final class Cut implements Clock {
  private final Clock real = new SystemClock();
  private volatile long ahead;

  public static Cut install() {
    if (LowLatencyClock.getClock() instanceof Cut there) return there;
    Cut mine = new Cut();
    LowLatencyClock.setClock(mine);
    return mine;
  }

  public synchronized void jump(long ms) {
    ahead += ms;
  }

  @Override
  public long getTimeMillis() {
    return real.getTimeMillis() + ahead;
  }

  @Override
  public long nanoTime() {
    return real.nanoTime() + ahead * 1_000_000;
  }

  @Override
  public long waitTillTime(long target) {
    return real.waitTillTime(target - ahead) + ahead;
  }
}

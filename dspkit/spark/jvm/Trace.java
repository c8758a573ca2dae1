package dspkit;

import java.io.Serializable;
import java.util.Arrays;

/** How many records a log holds by a time: straight lines between given points, and on at the last slope. */
final class Trace implements Serializable {
  private static final long serialVersionUID = 1;
  private final double[] times, counts;

  /** `text` is "seconds:records" for each point, parted by commas; both rise from 0:0. */
  Trace(String text) {
    String[] points = text.split(",");
    times = new double[points.length];
    counts = new double[points.length];
    for (int i = 0; i < points.length; i++) {
      int colon = points[i].indexOf(':');
      times[i] = Double.parseDouble(points[i].substring(0, colon));
      counts[i] = Double.parseDouble(points[i].substring(colon + 1));
    }
  }

  /** Records that are there at `seconds` after the start. */
  long count(double seconds) {
    if (seconds <= 0) return 0;
    int after = Arrays.binarySearch(times, seconds);
    if (after >= 0) return (long) counts[after];
    int hi = Math.min(-after - 1, times.length - 1);
    double share = (seconds - times[hi - 1]) / (times[hi] - times[hi - 1]);
    return (long) (counts[hi - 1] + share * (counts[hi] - counts[hi - 1]));
  }
}

package dspkit;

import java.nio.ByteBuffer;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import org.apache.spark.SparkEnv;
import org.apache.spark.api.plugin.PluginContext;
import org.apache.spark.network.client.RpcResponseCallback;
import org.apache.spark.network.client.TransportClient;
import org.apache.spark.network.client.TransportClientFactory;
import org.apache.spark.network.netty.SparkTransportConf;
import org.apache.spark.network.server.OneForOneStreamManager;
import org.apache.spark.network.server.RpcHandler;
import org.apache.spark.network.server.StreamManager;
import org.apache.spark.network.server.TransportServer;
import org.apache.spark.network.util.TransportConf;
import scala.Option;

/**
 * Round trips between the workers of a cluster of ours: a few times per second each executor pings another one over a
 * {@link PrivateTransport}. The delays that the cluster's user describes hold a ping and its answer as they hold frames.
 */
final class Pings {
  private static final long EVERY_MS = 200, TIMEOUT_MS = 10_000;
  private static final double KEPT_S = 30, SILENT_S = 15; // of a process that has said nothing no more is known

  private Pings() {}

  // In the driver

  private record Peer(String host, int port, double heard) {}

  private record Trip(double at, double seconds) {}

  private static final Map<Integer, Peer> PEERS = new HashMap<>(); // by worker; guards TRIPS and LINKS, too
  private static final Map<String, ArrayDeque<Trip>> TRIPS = new HashMap<>(); // by "1,2": who pinged whom
  private static String links = "";

  static void forget() {
    synchronized (PEERS) {
      PEERS.clear();
      TRIPS.clear();
      links = "";
    }
  }

  static void links(String described) {
    synchronized (PEERS) {
      if (!described.equals(links)) TRIPS.clear();
      links = described;
    }
  }

  /** A worker says where it can be reached, and how long its last ping took. It hears of the others, and of links. */
  static Object hear(Object[] said) {
    int worker = (Integer) said[1], other = (Integer) said[4];
    double now = seconds();
    synchronized (PEERS) {
      PEERS.put(worker, new Peer((String) said[2], (Integer) said[3], now));
      PEERS.values().removeIf(peer -> now - peer.heard > SILENT_S);
      if (other >= 0 && links.equals(said[6])) {
        ArrayDeque<Trip> trips = TRIPS.computeIfAbsent(worker + "," + other, any -> new ArrayDeque<>());
        trips.add(new Trip(now, (Double) said[5]));
        while (now - trips.peek().at > KEPT_S) trips.remove();
      }
      List<Object[]> others = new ArrayList<>();
      PEERS.forEach((number, peer) -> { if (number != worker) others.add(new Object[] {number, peer.host, peer.port}); });
      return new Object[] {links, others.toArray()};
    }
  }

  /** The least round trip of the last seconds, by "1,2": the numbers of who pinged and of who answered. */
  static Map<String, Double> least(double last) {
    double since = seconds() - Math.min(last, KEPT_S);
    Map<String, Double> found = new HashMap<>();
    synchronized (PEERS) {
      TRIPS.forEach(
          (pair, trips) ->
              trips.stream()
                  .filter(trip -> trip.at >= since)
                  .mapToDouble(trip -> trip.seconds)
                  .min()
                  .ifPresent(least -> found.put(pair, least)));
    }
    return found;
  }

  private static double seconds() {
    return System.nanoTime() * 1e-9;
  }

  // In an executor

  /** The number of this process's worker; negative where it belongs to no cluster of ours. */
  static int worker() {
    String here = System.getenv("DSPKIT_WORKER");
    return here == null ? -1 : Integer.parseInt(here.substring(here.lastIndexOf('-') + 1));
  }

  /** Ping the others until the thread is interrupted. */
  static void run(PluginContext context, int own) throws InterruptedException {
    TransportConf conf =
        SparkTransportConf.fromSparkConf(SparkEnv.get().conf(), "shuffle", 1, Option.empty(), Option.empty());
    Echo echo = new Echo();
    try (PrivateTransport answers = new PrivateTransport(conf, echo);
        PrivateTransport asks = new PrivateTransport(conf, echo);
        TransportServer server = answers.createServer();
        TransportClientFactory clients = asks.createClientFactory()) {
      Object[] news = {"ping", own, PrivateTransport.host(), server.getPort(), -1, 0.0, ""};
      while (true) {
        Thread.sleep(EVERY_MS);
        try {
          Object[] heard = (Object[]) context.ask(news);
          String links = (String) heard[0];
          news = new Object[] {news[0], news[1], news[2], news[3], -1, 0.0, links};
          Object[] others = (Object[]) heard[1];
          if (others.length == 0) continue;
          Object[] other = (Object[]) others[ThreadLocalRandom.current().nextInt(others.length)];
          long there = Links.delays(links, (Integer) other[0]).getOrDefault(own, 0L);
          long back = Links.delays(links, own).getOrDefault((Integer) other[0], 0L);
          TransportClient client = clients.createClient((String) other[1], (Integer) other[2]);
          long began = System.nanoTime();
          client.sendRpcSync(ByteBuffer.allocate(8).putLong(0, there), there / 1_000_000 + TIMEOUT_MS);
          TimeUnit.NANOSECONDS.sleep(back);
          news[4] = other[0];
          news[5] = (System.nanoTime() - began) * 1e-9;
        } catch (InterruptedException end) {
          throw end;
        } catch (Exception error) {
          // The other one has gone, or the driver is busy: the next turn asks again who is there.
        }
      }
    } finally {
      echo.later.shutdownNow();
    }
  }

  /** Answers a ping once it would have arrived: it says how long its way is. */
  private static final class Echo extends RpcHandler {
    final ScheduledExecutorService later =
        Executors.newSingleThreadScheduledExecutor(
            task -> {
              Thread thread = new Thread(task, "dspkit-pings");
              thread.setDaemon(true);
              return thread;
            });

    @Override
    public void receive(TransportClient client, ByteBuffer message, RpcResponseCallback callback) {
      if (message.remaining() != 8) throw new IllegalArgumentException("a ping of " + message.remaining() + " bytes");
      long nanos = message.getLong();
      later.schedule(() -> callback.onSuccess(ByteBuffer.allocate(0)), nanos, TimeUnit.NANOSECONDS);
    }

    @Override
    public StreamManager getStreamManager() {
      return new OneForOneStreamManager();
    }
  }
}

package dspkit;

import io.netty.channel.Channel;
import io.netty.channel.ChannelDuplexHandler;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelPipeline;
import io.netty.channel.ChannelPromise;
import io.netty.channel.socket.SocketChannel;
import io.netty.util.AttributeKey;
import io.netty.util.ReferenceCountUtil;
import io.netty.util.concurrent.Future;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.apache.spark.SecurityManager;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkEnv;
import org.apache.spark.network.TransportContext;
import org.apache.spark.network.client.RpcResponseCallback;
import org.apache.spark.network.client.TransportClient;
import org.apache.spark.network.client.TransportClientBootstrap;
import org.apache.spark.network.client.TransportClientFactory;
import org.apache.spark.network.crypto.AuthClientBootstrap;
import org.apache.spark.network.crypto.AuthServerBootstrap;
import org.apache.spark.network.protocol.ResponseMessage;
import org.apache.spark.network.protocol.RpcFailure;
import org.apache.spark.network.protocol.RpcRequest;
import org.apache.spark.network.server.AbstractAuthRpcHandler;
import org.apache.spark.network.server.RpcHandler;
import org.apache.spark.network.server.StreamManager;
import org.apache.spark.network.server.TransportChannelHandler;
import org.apache.spark.network.server.TransportServer;
import org.apache.spark.network.util.TransportConf;
import org.apache.spark.network.util.TransportFrameDecoder;
import org.apache.spark.util.Utils;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * A transport between the tasks of one application; {@link Exchange} puts it into Spark's streaming shuffle.
 *
 * <p>Its servers listen at the address of their process instead of on all interfaces, and take short frames only, which
 * is all that readers send. With `spark.authenticate` each side proves to the other that it knows the application's
 * secret, by the exchange that Spark's other connections begin with. Until then nothing of a connection reaches the
 * shuffle, neither a message nor a failure; whatever is not part of that exchange closes it, and so does a long wait.
 */
public final class PrivateTransport extends TransportContext {
  private static final long FRAME_BYTES = 1 << 16;
  private static final AttributeKey<Gate> GATE = AttributeKey.valueOf("dspkit.gate");
  private static final Logger LOG = LoggerFactory.getLogger("dspkit");

  private final Gate gate;

  public PrivateTransport(TransportConf conf, RpcHandler handler) {
    this(conf, new Gate(handler));
  }

  private PrivateTransport(TransportConf conf, Gate gate) {
    super(conf, gate);
    this.gate = gate;
  }

  @Override
  public TransportServer createServer() {
    return createServer(host(), 0, List.of((channel, any) -> admit(channel)));
  }

  @Override
  public TransportClientFactory createClientFactory() {
    List<TransportClientBootstrap> steps = new ArrayList<>();
    SecurityManager security = SparkEnv.get().securityManager();
    if (security.isAuthenticationEnabled()) {
      steps.add(new AuthClientBootstrap(getConf(), security.getSaslUser(), security));
    }
    steps.add(
        (client, channel) -> {
          channel.pipeline().remove(FrameLimit.class); // from here on the server is known, and sends long frames
          gate.open = true;
          gate.handler.channelActive(client);
        });
    return createClientFactory(steps);
  }

  @Override
  public TransportChannelHandler initializePipeline(SocketChannel channel, RpcHandler handler, boolean isClient) {
    TransportChannelHandler last = super.initializePipeline(channel, handler, isClient);
    ChannelPipeline pipeline = channel.pipeline();
    pipeline.addBefore(TransportFrameDecoder.HANDLER_NAME, null, new FrameLimit(FRAME_BYTES));
    Gate at = isClient ? gate : channel.attr(GATE).get();
    Class<?> first = isClient ? ResponseMessage.class : RpcRequest.class;
    pipeline.addBefore(pipeline.context(last).name(), null, new Doorman(at, first));
    return last;
  }

  /** The handler of a new connection to a server: it has to log in first. */
  private RpcHandler admit(Channel channel) {
    Gate at = new Gate(gate.handler);
    channel.attr(GATE).set(at);
    SecurityManager security = SparkEnv.get().securityManager();
    if (!security.isAuthenticationEnabled()) {
      at.open = true;
      return at;
    }
    at.login = (AbstractAuthRpcHandler) new AuthServerBootstrap(getConf(), security).doBootstrap(channel, at);
    Runnable late = () -> { if (!at.isOpen()) refuse(channel, "no login"); };
    Future<?> timer = channel.eventLoop().schedule(late, getConf().authRTTimeoutMs(), TimeUnit.MILLISECONDS);
    channel.closeFuture().addListener(end -> timer.cancel(false));
    return at.login;
  }

  /** The address to listen at, as Spark chooses it for the other servers of this process. */
  static String host() {
    SparkEnv here = SparkEnv.get();
    if (!"driver".equals(here.executorId())) return Utils.localHostName();
    SparkConf conf = here.conf();
    return conf.get("spark.driver.bindAddress", conf.get("spark.driver.host", Utils.localHostName()));
  }

  static void refuse(Channel channel, String why) {
    LOG.warn("a connection of {} to the streaming shuffle was closed: {}", channel.remoteAddress(), why);
    channel.close();
  }

  /** Before a handler of the shuffle, which hears of a connection once its peer is known. */
  private static final class Gate extends RpcHandler {
    final RpcHandler handler;
    volatile boolean open;
    AbstractAuthRpcHandler login;

    Gate(RpcHandler handler) {
      this.handler = handler;
    }

    boolean isOpen() {
      return open || login != null && login.isAuthenticated();
    }

    @Override
    public void receive(TransportClient client, ByteBuffer message, RpcResponseCallback callback) {
      handler.receive(client, message, callback); // a Doorman lets none pass before
    }

    @Override
    public void channelActive(TransportClient client) {
      // A client begins when its login has succeeded.
    }

    @Override
    public void channelInactive(TransportClient client) {
      if (isOpen()) handler.channelInactive(client);
    }

    @Override
    public void exceptionCaught(Throwable cause, TransportClient client) {
      if (isOpen()) handler.exceptionCaught(cause, client);
      else LOG.warn("a connection to the streaming shuffle failed before its login: {}", cause.toString());
    }

    @Override
    public StreamManager getStreamManager() {
      return handler.getStreamManager();
    }
  }

  /** Closes a connection at the first message that is not part of its login. */
  private static final class Doorman extends ChannelDuplexHandler {
    private final Gate gate;
    private final Class<?> first;

    Doorman(Gate gate, Class<?> first) {
      this.gate = gate;
      this.first = first;
    }

    @Override
    public void channelRead(ChannelHandlerContext at, Object message) {
      if (gate.isOpen() || first.isInstance(message)) {
        at.fireChannelRead(message);
      } else {
        ReferenceCountUtil.release(message);
        refuse(at.channel(), message.getClass().getSimpleName() + " before the login");
      }
    }

    @Override
    public void write(ChannelHandlerContext at, Object message, ChannelPromise done) {
      if (!gate.isOpen() && message instanceof RpcFailure) refuse(at.channel(), "a wrong login");
      else at.write(message, done);
    }
  }
}

package dspkit;

import io.netty.buffer.ByteBuf;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInboundHandlerAdapter;

/**
 * Closes a connection whose peer announces a frame that is too long, before anything is kept of it.
 *
 * <p>A frame begins with its length in eight bytes, which count themselves. Bytes are passed on as they come.
 */
final class FrameLimit extends ChannelInboundHandlerAdapter {
  private static final int LENGTH_BYTES = 8;

  private final long most;
  private long length;
  private int known; // bytes of the length
  private long left; // bytes of the frame that have not come yet
  private boolean closed;

  FrameLimit(long most) {
    this.most = most;
  }

  @Override
  public void channelRead(ChannelHandlerContext at, Object message) {
    ByteBuf bytes = (ByteBuf) message;
    if (!closed && fits(bytes)) {
      at.fireChannelRead(bytes);
      return;
    }
    bytes.release();
    if (!closed) PrivateTransport.refuse(at.channel(), "a frame of " + length + " bytes");
    closed = true;
  }

  private boolean fits(ByteBuf bytes) {
    int end = bytes.writerIndex();
    for (int i = bytes.readerIndex(); i < end; ) {
      if (left > 0) {
        int more = (int) Math.min(left, end - i);
        left -= more;
        i += more;
        continue;
      }
      length = length << 8 | bytes.getByte(i++) & 0xff;
      if (++known < LENGTH_BYTES) continue;
      if (length <= LENGTH_BYTES || length > most) return false;
      left = length - LENGTH_BYTES;
      length = known = 0;
    }
    return true;
  }
}

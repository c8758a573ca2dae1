package dspkit;

import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.FilterOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.util.UUID;
import java.util.zip.CRC32;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager;
import org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager;

/**
 * Spark's own checkpoint files, written to a local disk as a program would: Hadoop starts a `chmod` for each of them,
 * while nothing runs between two epochs. Each has Hadoop's checksums beside it, in `.<name>.crc`, and is on the disk
 * when it is closed.
 */
public final class Checkpoints extends FileSystemBasedCheckpointFileManager {
  public Checkpoints(Path path, Configuration conf) {
    super(path, conf);
  }

  /** Write a file, or the names in a folder, to the disk. */
  static void synchronise(java.nio.file.Path path) throws IOException {
    try (FileChannel channel = FileChannel.open(path, StandardOpenOption.READ)) {
      channel.force(true);
    }
  }

  private static java.nio.file.Path local(Path path) {
    return Paths.get(path.toUri().getPath());
  }

  @Override
  public void mkdirs(Path path) {
    try {
      if (!isLocal()) {
        super.mkdirs(path);
        return;
      }
      Files.createDirectories(local(path));
      java.nio.file.Path above = local(path).getParent();
      for (int level = 0; level < 2 && above != null; level++, above = above.getParent()) synchronise(above);
    } catch (IOException error) {
      throw new java.io.UncheckedIOException(error);
    }
  }

  @Override
  public CheckpointFileManager.CancellableFSDataOutputStream createAtomic(Path path, boolean overwrite) {
    if (!isLocal()) return super.createAtomic(path, overwrite);
    try {
      return new Atomic(local(path), overwrite);
    } catch (IOException error) {
      throw new java.io.UncheckedIOException(error);
    }
  }

  /** Hadoop's checksums of what is written: a head, and one number for each 512 bytes. */
  private static final class Sums extends FilterOutputStream {
    private static final int BLOCK = 512;
    private final ByteArrayOutputStream sums = new ByteArrayOutputStream();
    private final DataOutputStream numbers = new DataOutputStream(sums);
    private final CRC32 sum = new CRC32();
    private int filled;

    private Sums(OutputStream file) throws IOException {
      super(file);
      numbers.write(new byte[] {'c', 'r', 'c', 0});
      numbers.writeInt(BLOCK);
    }

    @Override
    public void write(int b) throws IOException {
      write(new byte[] {(byte) b}, 0, 1);
    }

    @Override
    public void write(byte[] bytes, int from, int length) throws IOException {
      out.write(bytes, from, length);
      for (int done = 0; done < length; ) {
        int part = Math.min(length - done, BLOCK - filled);
        sum.update(bytes, from + done, part);
        done += part;
        filled += part;
        if (filled == BLOCK) next();
      }
    }

    private void next() throws IOException {
      numbers.writeInt((int) sum.getValue());
      sum.reset();
      filled = 0;
    }

    private byte[] all() throws IOException {
      if (filled > 0) next();
      return sums.toByteArray();
    }
  }

  /** A file that is there when it is closed, and whole. */
  private static final class Atomic extends CheckpointFileManager.CancellableFSDataOutputStream {
    private final java.nio.file.Path fresh, path;
    private final boolean overwrite;
    private final Sums sums;
    private boolean ended;

    private Atomic(java.nio.file.Path path, boolean overwrite) throws IOException {
      this(path, path.resolveSibling("." + path.getFileName() + "." + UUID.randomUUID() + ".tmp"), overwrite);
    }

    private Atomic(java.nio.file.Path path, java.nio.file.Path fresh, boolean overwrite) throws IOException {
      this(path, fresh, overwrite, new Sums(Files.newOutputStream(fresh)));
    }

    private Atomic(java.nio.file.Path path, java.nio.file.Path fresh, boolean overwrite, Sums sums) {
      super(sums);
      this.path = path;
      this.fresh = fresh;
      this.overwrite = overwrite;
      this.sums = sums;
    }

    @Override
    public synchronized void close() throws IOException {
      if (ended) return;
      ended = true;
      underlyingStream().close();
      if (!overwrite && Files.exists(path)) {
        Files.deleteIfExists(fresh);
        throw new FileAlreadyExistsException("File already exists: " + path);
      }
      synchronise(fresh);
      java.nio.file.Path sum = path.resolveSibling("." + path.getFileName() + ".crc");
      java.nio.file.Path freshSum = fresh.resolveSibling(fresh.getFileName() + ".crc");
      Files.write(freshSum, sums.all());
      synchronise(freshSum);
      Files.move(freshSum, sum, StandardCopyOption.ATOMIC_MOVE, StandardCopyOption.REPLACE_EXISTING);
      Files.move(fresh, path, StandardCopyOption.ATOMIC_MOVE, StandardCopyOption.REPLACE_EXISTING);
      synchronise(path.getParent());
    }

    @Override
    public synchronized void cancel() {
      if (ended) return;
      ended = true;
      try {
        underlyingStream().close();
        Files.deleteIfExists(fresh);
      } catch (IOException error) {
        // a temporary file stays; nobody reads it
      }
    }
  }
}

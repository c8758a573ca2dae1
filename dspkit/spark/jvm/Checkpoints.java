package dspkit;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.nio.file.StandardCopyOption;
import java.util.UUID;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager;
import org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager;

/**
 * Spark's own checkpoint files, written to a local disk as a program would: Hadoop starts a `chmod` for each of them,
 * while nothing runs between two epochs.
 */
public final class Checkpoints extends FileSystemBasedCheckpointFileManager {
  public Checkpoints(Path path, Configuration conf) {
    super(path, conf);
  }

  private static java.nio.file.Path local(Path path) {
    return Paths.get(path.toUri().getPath());
  }

  @Override
  public void mkdirs(Path path) {
    try {
      if (isLocal()) Files.createDirectories(local(path));
      else super.mkdirs(path);
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

  /** A file that is there when it is closed, and whole. */
  private static final class Atomic extends CheckpointFileManager.CancellableFSDataOutputStream {
    private final java.nio.file.Path fresh, path;
    private final boolean overwrite;
    private boolean ended;

    private Atomic(java.nio.file.Path path, boolean overwrite) throws IOException {
      this(path, path.resolveSibling("." + path.getFileName() + "." + UUID.randomUUID() + ".tmp"), overwrite);
    }

    private Atomic(java.nio.file.Path path, java.nio.file.Path fresh, boolean overwrite) throws IOException {
      super(Files.newOutputStream(fresh));
      this.path = path;
      this.fresh = fresh;
      this.overwrite = overwrite;
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
      Files.deleteIfExists(path.resolveSibling("." + path.getFileName() + ".crc")); // of a file before it
      Files.move(fresh, path, StandardCopyOption.ATOMIC_MOVE, StandardCopyOption.REPLACE_EXISTING);
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

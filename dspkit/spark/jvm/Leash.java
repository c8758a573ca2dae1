package dspkit;

import java.io.File;
import java.io.IOException;

/**
 * Runs a Java program for as long as the process that started it lives: `Leash FOLDER MAIN ARGS...`.
 *
 * <p>Whoever starts it holds the other end of its standard input. That ends with them, however they end. A copy of
 * the starter (a fork) may hold it open, so the starter is looked for too. Then this process ends as if it had been
 * told to, and with it what it started itself; FOLDER is removed, unless it is "-".
 */
public final class Leash {
  private static final long LOOK_MS = 500, GRACE_MS = 3000;

  public static void main(String[] args) throws Exception {
    long starter = parent();
    watch("dspkit-input", () -> {
      try {
        while (System.in.read() >= 0) {}
      } catch (IOException error) {
        // as good as its end
      }
    }, args[0]);
    watch("dspkit-starter", () -> {
      try {
        while (parent() == starter) Thread.sleep(LOOK_MS);
      } catch (InterruptedException end) {
        Thread.currentThread().interrupt();
      }
    }, args[0]);
    String[] rest = java.util.Arrays.copyOfRange(args, 2, args.length);
    Class.forName(args[1]).getMethod("main", String[].class).invoke(null, (Object) rest);
  }

  private static long parent() {
    return ProcessHandle.current().parent().map(ProcessHandle::pid).orElse(0L);
  }

  private static void watch(String name, Runnable untilTheEnd, String folder) {
    Thread thread =
        new Thread(
            () -> {
              untilTheEnd.run();
              end(folder);
            },
            name);
    thread.setDaemon(true);
    thread.start();
  }

  private static synchronized void end(String folder) {
    Thread last = new Thread(() -> System.exit(0)); // runs the program's own hooks; they may hang
    last.setDaemon(true);
    if (folder.equals("-")) last.start();
    try {
      Thread.sleep(GRACE_MS);
    } catch (InterruptedException now) {
      // then now
    }
    if (!folder.equals("-")) remove(new File(folder));
    Runtime.getRuntime().halt(0);
  }

  private static void remove(File file) {
    File[] inside = java.nio.file.Files.isSymbolicLink(file.toPath()) ? null : file.listFiles();
    if (inside != null) for (File each : inside) remove(each);
    file.delete();
  }
}

package dspkit;

import jakarta.servlet.Filter;
import jakarta.servlet.FilterChain;
import jakarta.servlet.ServletRequest;
import jakarta.servlet.ServletResponse;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;

/** Refuses every page of a master or a worker: they show logs and command lines, and Spark has no login for them. */
public final class NoPages implements Filter {
  @Override
  public void doFilter(ServletRequest request, ServletResponse response, FilterChain rest) throws IOException {
    ((HttpServletResponse) response).sendError(HttpServletResponse.SC_FORBIDDEN);
  }
}

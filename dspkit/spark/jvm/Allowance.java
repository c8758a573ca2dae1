package dspkit;

/** What the readers of one job in this process may do: the job itself in the driver, a {@link Lease} elsewhere. */
interface Allowance {
  /** What an epoch was planned with; a higher number ends it. `otherwise` where nothing has been heard yet. */
  long version(long otherwise);

  /** How many records may be taken now. */
  long credit();

  /** And how many in one frame. */
  int frameRecords();

  void took(long records);

  static Allowance of(int job) {
    Job here = Job.get(job);
    return here != null ? here : Lease.of(job);
  }
}

// SIGINT, SIGTERM and SIGHUP of a command that has more to do before it ends of one, such as ending what it started.
#pragma once

namespace myriad::cli {

// While it lives those signals are noted and end nobody; one that this process ignores (nohup) stays ignored. One at a
// time in a process.
class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  // The first that came, 0: none.
  [[nodiscard]] int signal() const;
  // Becomes readable when one comes, for poll(2); -1 if the system gave none.
  [[nodiscard]] int fd() const;
  // The last look: signal(); if that is 0, the next one does again what it did before.
  [[nodiscard]] int finish();

 private:
  void install();
  void restore();
};

// Ends this process by the signal, as it would have ended without Interrupt, so that whoever waits for it sees that.
// Returns what a shell calls that, if the signal does not end it.
int end_by(int signal);

}  // namespace myriad::cli

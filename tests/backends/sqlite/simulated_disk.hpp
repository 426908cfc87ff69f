// A disk whose power can fail, and whose reads and writes can fail, under SQLite.
#pragma once

#include <sqlite3.h>

#include <cstddef>
#include <filesystem>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <vector>

namespace syncguard::testing {

// While it exists, every connection that this process opens uses it. It passes all calls on to the system except syncs,
// and records the changes to the files of one folder.
class SimulatedDisk {
 public:
  struct Event {
    enum class Kind { write, truncate, sync };
    Kind kind = Kind::write;
    std::string file{};       // its name in the folder
    std::string operation{};  // the operation of the test
    std::size_t offset = 0;   // of the data, or the new size
    std::string data{};
  };
  using Files = std::map<std::string, std::string>;  // content by name

  // The files in the folder count as synced.
  explicit SimulatedDisk(std::filesystem::path folder);
  SimulatedDisk(const SimulatedDisk&) = delete;
  SimulatedDisk& operator=(const SimulatedDisk&) = delete;
  // All connections must be closed.
  ~SimulatedDisk();

  // The operation that the test starts now.
  void set_operation(std::string operation);
  [[nodiscard]] std::vector<Event> events() const;
  [[nodiscard]] std::size_t event_count() const;
  [[nodiscard]] std::size_t sync_count() const;
  [[nodiscard]] const Files& files_at_start() const { return files_at_start_; }

  // The next read, write or sync of a file of the folder fails with this result code, once.
  void fail_next_read(int result);
  void fail_next_write(int result);
  void fail_next_sync(int result);

 private:
  struct File;
  friend struct File;

  static int open(sqlite3_vfs* vfs, const char* name, sqlite3_file* file, int flags, int* flags_out);
  [[nodiscard]] bool is_recorded(const std::filesystem::path& file) const { return file.parent_path() == folder_; }
  void record(Event event);

  const std::filesystem::path folder_;
  Files files_at_start_;
  sqlite3_vfs* const system_;
  sqlite3_vfs vfs_;

  mutable std::mutex mutex_;
  std::string operation_;
  std::vector<Event> events_;
  int read_error_ = SQLITE_OK;
  int write_error_ = SQLITE_OK;
  int sync_error_ = SQLITE_OK;
};

// Replays the recorded changes, and returns the content of the files if the power fails at that point.
class PowerCut {
 public:
  // Syncs of the write-ahead log during the given operation count as if SQLite had not made them.
  explicit PowerCut(const SimulatedDisk& disk, std::string operation_without_syncs = "");

  // The power fails after so many events. Must not decrease.
  void advance_to(std::size_t event_count);
  // One of the possible outcomes: each change that was not synced is kept, dropped, or made in part.
  [[nodiscard]] SimulatedDisk::Files files(std::mt19937& random) const;

 private:
  struct FileState {
    std::string synced;
    std::vector<const SimulatedDisk::Event*> unsynced;
  };

  const std::string operation_without_syncs_;
  const std::vector<SimulatedDisk::Event> events_;
  std::size_t next_ = 0;
  std::map<std::string, FileState> files_;
};

}  // namespace syncguard::testing

#include "simulated_disk.hpp"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <new>
#include <utility>

namespace syncguard::testing {
namespace {

using Event = SimulatedDisk::Event;

void write_to(std::string& content, std::size_t offset, std::string_view data) {
  if (content.size() < offset + data.size()) content.resize(offset + data.size(), '\0');
  content.replace(offset, data.size(), data);
}

void apply(std::string& content, const Event& event) {
  if (event.kind == Event::Kind::write) {
    write_to(content, event.offset, event.data);
  } else {
    content.resize(event.offset, '\0');
  }
}

// A disk writes whole sectors, in any order.
void apply_in_part(std::string& content, const Event& event, std::mt19937& random) {
  constexpr std::size_t sector = 512;
  for (std::size_t begin = 0; begin < event.data.size();) {
    const auto end = std::min(event.data.size(), (event.offset + begin) / sector * sector + sector - event.offset);
    if (random() % 2 == 0) write_to(content, event.offset + begin, event.data.substr(begin, end - begin));
    begin = end;
  }
}

}  // namespace

// ---------------------------------------------------------------------------------------------------------------------
// SimulatedDisk

// The file of the system lies behind it, in memory that SQLite provides.
struct SimulatedDisk::File {
  sqlite3_file base{};
  SimulatedDisk* disk = nullptr;
  std::string* name = nullptr;

  static sqlite3_file* system(sqlite3_file* file) {
    return reinterpret_cast<sqlite3_file*>(reinterpret_cast<File*>(file) + 1);
  }
  static const sqlite3_io_methods& methods(sqlite3_file* file) { return *system(file)->pMethods; }
  static File& of(sqlite3_file* file) { return *reinterpret_cast<File*>(file); }

  static int close(sqlite3_file* file) {
    delete of(file).name;
    return methods(file).xClose(system(file));
  }
  static int read(sqlite3_file* file, void* data, int size, sqlite3_int64 offset) {
    if (const int error = of(file).take(&SimulatedDisk::read_error_); error != SQLITE_OK) return error;
    return methods(file).xRead(system(file), data, size, offset);
  }
  static int write(sqlite3_file* file, const void* data, int size, sqlite3_int64 offset) {
    if (const int error = of(file).take(&SimulatedDisk::write_error_); error != SQLITE_OK) return error;
    of(file).record({.kind = Event::Kind::write,
                     .offset = static_cast<std::size_t>(offset),
                     .data = std::string(static_cast<const char*>(data), static_cast<std::size_t>(size))});
    return methods(file).xWrite(system(file), data, size, offset);
  }
  static int truncate(sqlite3_file* file, sqlite3_int64 size) {
    of(file).record({.kind = Event::Kind::truncate, .offset = static_cast<std::size_t>(size)});
    return methods(file).xTruncate(system(file), size);
  }
  static int sync(sqlite3_file* file, int) {
    if (const int error = of(file).take(&SimulatedDisk::sync_error_); error != SQLITE_OK) return error;
    of(file).record({.kind = Event::Kind::sync});
    return SQLITE_OK;
  }
  static int size(sqlite3_file* file, sqlite3_int64* size) { return methods(file).xFileSize(system(file), size); }
  static int lock(sqlite3_file* file, int level) { return methods(file).xLock(system(file), level); }
  static int unlock(sqlite3_file* file, int level) { return methods(file).xUnlock(system(file), level); }
  static int is_reserved(sqlite3_file* file, int* result) {
    return methods(file).xCheckReservedLock(system(file), result);
  }
  static int control(sqlite3_file* file, int operation, void* argument) {
    return methods(file).xFileControl(system(file), operation, argument);
  }
  static int sector_size(sqlite3_file* file) { return methods(file).xSectorSize(system(file)); }
  static int characteristics(sqlite3_file* file) { return methods(file).xDeviceCharacteristics(system(file)); }
  static int map_shared(sqlite3_file* file, int page, int size, int extend, void volatile** memory) {
    return methods(file).xShmMap(system(file), page, size, extend, memory);
  }
  static int lock_shared(sqlite3_file* file, int offset, int count, int flags) {
    return methods(file).xShmLock(system(file), offset, count, flags);
  }
  static void shared_barrier(sqlite3_file* file) { methods(file).xShmBarrier(system(file)); }
  static int unmap_shared(sqlite3_file* file, int remove) { return methods(file).xShmUnmap(system(file), remove); }

  void record(Event event) const {
    if (name == nullptr) return;
    event.file = *name;
    disk->record(std::move(event));
  }
  [[nodiscard]] int take(int SimulatedDisk::*error) const {
    if (name == nullptr) return SQLITE_OK;
    const std::lock_guard lock(disk->mutex_);
    return std::exchange(disk->*error, SQLITE_OK);
  }
};

SimulatedDisk::SimulatedDisk(std::filesystem::path folder)
    : folder_(std::move(folder)), system_(sqlite3_vfs_find(nullptr)), vfs_(*system_) {
  for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
    std::ifstream file(entry.path(), std::ios::binary);
    files_at_start_[entry.path().filename()] = {std::istreambuf_iterator<char>(file), {}};
  }
  // The system's other functions do not look at pAppData.
  vfs_.zName = "simulated disk";
  vfs_.pAppData = this;
  vfs_.szOsFile += static_cast<int>(sizeof(File));
  vfs_.pNext = nullptr;
  vfs_.xOpen = &SimulatedDisk::open;
  sqlite3_vfs_register(&vfs_, 1);
}

SimulatedDisk::~SimulatedDisk() {
  sqlite3_vfs_unregister(&vfs_);
  sqlite3_vfs_register(system_, 1);
}

int SimulatedDisk::open(sqlite3_vfs* vfs, const char* name, sqlite3_file* file, int flags, int* flags_out) {
  static constexpr sqlite3_io_methods methods{.iVersion = 2,
                                              .xClose = &File::close,
                                              .xRead = &File::read,
                                              .xWrite = &File::write,
                                              .xTruncate = &File::truncate,
                                              .xSync = &File::sync,
                                              .xFileSize = &File::size,
                                              .xLock = &File::lock,
                                              .xUnlock = &File::unlock,
                                              .xCheckReservedLock = &File::is_reserved,
                                              .xFileControl = &File::control,
                                              .xSectorSize = &File::sector_size,
                                              .xDeviceCharacteristics = &File::characteristics,
                                              .xShmMap = &File::map_shared,
                                              .xShmLock = &File::lock_shared,
                                              .xShmBarrier = &File::shared_barrier,
                                              .xShmUnmap = &File::unmap_shared,
                                              .xFetch = nullptr,
                                              .xUnfetch = nullptr};
  auto& disk = *static_cast<SimulatedDisk*>(vfs->pAppData);
  auto* const created = new (file) File;
  const int result = disk.system_->xOpen(disk.system_, name, File::system(file), flags, flags_out);
  if (result != SQLITE_OK) return result;
  created->base.pMethods = &methods;
  created->disk = &disk;
  if (name != nullptr && disk.is_recorded(name))
    created->name = new std::string(std::filesystem::path(name).filename());
  return SQLITE_OK;
}

void SimulatedDisk::record(Event event) {
  const std::lock_guard lock(mutex_);
  event.operation = operation_;
  events_.push_back(std::move(event));
}

void SimulatedDisk::set_operation(std::string operation) {
  const std::lock_guard lock(mutex_);
  operation_ = std::move(operation);
}

std::vector<Event> SimulatedDisk::events() const {
  const std::lock_guard lock(mutex_);
  return events_;
}

std::size_t SimulatedDisk::event_count() const {
  const std::lock_guard lock(mutex_);
  return events_.size();
}

std::size_t SimulatedDisk::sync_count() const {
  const std::lock_guard lock(mutex_);
  return static_cast<std::size_t>(
      std::ranges::count(events_, Event::Kind::sync, [](const Event& event) { return event.kind; }));
}

void SimulatedDisk::fail_next_read(int result) {
  const std::lock_guard lock(mutex_);
  read_error_ = result;
}

void SimulatedDisk::fail_next_write(int result) {
  const std::lock_guard lock(mutex_);
  write_error_ = result;
}

void SimulatedDisk::fail_next_sync(int result) {
  const std::lock_guard lock(mutex_);
  sync_error_ = result;
}

// ---------------------------------------------------------------------------------------------------------------------
// PowerCut

PowerCut::PowerCut(const SimulatedDisk& disk, std::string operation_without_syncs)
    : operation_without_syncs_(std::move(operation_without_syncs)), events_(disk.events()) {
  for (const auto& [name, content] : disk.files_at_start()) files_[name].synced = content;
}

void PowerCut::advance_to(std::size_t event_count) {
  for (; next_ < event_count; ++next_) {
    const auto& event = events_[next_];
    auto& [synced, unsynced] = files_[event.file];
    if (event.kind != Event::Kind::sync) {
      unsynced.push_back(&event);
    } else if (event.operation != operation_without_syncs_ || !event.file.ends_with("-wal")) {
      for (const auto* change : unsynced) apply(synced, *change);
      unsynced.clear();
    }
  }
}

SimulatedDisk::Files PowerCut::files(std::mt19937& random) const {
  SimulatedDisk::Files result;
  for (const auto& [name, state] : files_) {
    auto& content = result[name] = state.synced;
    // Where only single changes get lost, those in front of them and behind them matter more.
    const unsigned fates = random() % 2 == 0 ? 3 : 12;
    for (const auto* change : state.unsynced) {
      const auto fate = random() % fates;
      if (fate == 0) continue;
      if (fate == 1 && change->kind == Event::Kind::write) {
        apply_in_part(content, *change, random);
      } else {
        apply(content, *change);
      }
    }
  }
  return result;
}

}  // namespace syncguard::testing

#include "fault_vfs.h"

#include <limits.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>

#include "testing.h"

/* The real file lies behind ours, in the same allocation. */
struct fault_file {
    sqlite3_file base;
    sqlite3_io_methods methods;
    const sqlite3_io_methods *real;
};

static struct {
    sqlite3_vfs vfs;
    sqlite3_vfs *real;
    atomic_int n_before; /* calls that go well; negative: fail */
    atomic_int n_failing;
    atomic_int n_failed;
    atomic_int code;
} fault;

static sqlite3_file *real_of(sqlite3_file *file) {
    return (sqlite3_file *)(void *)((char *)file + sizeof(struct fault_file));
}

/* 0: the call goes on. */
static int fault_now(void) {
    if (atomic_fetch_sub(&fault.n_before, 1) > 0 || atomic_fetch_sub(&fault.n_failing, 1) <= 0) {
        return SQLITE_OK;
    }
    atomic_fetch_add(&fault.n_failed, 1);
    return atomic_load(&fault.code);
}

static int fault_write(sqlite3_file *file, const void *bytes, int n, sqlite3_int64 at) {
    int code = fault_now();
    return code != SQLITE_OK ? code : real_of(file)->pMethods->xWrite(real_of(file), bytes, n, at);
}

static int fault_truncate(sqlite3_file *file, sqlite3_int64 size) {
    int code = fault_now();
    return code != SQLITE_OK ? code : real_of(file)->pMethods->xTruncate(real_of(file), size);
}

static int fault_sync(sqlite3_file *file, int flags) {
    int code = fault_now();
    return code != SQLITE_OK ? code : real_of(file)->pMethods->xSync(real_of(file), flags);
}

/* The rest is passed on. */
static int fault_close(sqlite3_file *f) {
    return real_of(f)->pMethods->xClose(real_of(f));
}
static int fault_read(sqlite3_file *f, void *out, int n, sqlite3_int64 at) {
    return real_of(f)->pMethods->xRead(real_of(f), out, n, at);
}
static int fault_size(sqlite3_file *f, sqlite3_int64 *out) {
    return real_of(f)->pMethods->xFileSize(real_of(f), out);
}
static int fault_lock(sqlite3_file *f, int level) {
    return real_of(f)->pMethods->xLock(real_of(f), level);
}
static int fault_unlock(sqlite3_file *f, int level) {
    return real_of(f)->pMethods->xUnlock(real_of(f), level);
}
static int fault_reserved(sqlite3_file *f, int *out) {
    return real_of(f)->pMethods->xCheckReservedLock(real_of(f), out);
}
static int fault_control(sqlite3_file *f, int op, void *argument) {
    return real_of(f)->pMethods->xFileControl(real_of(f), op, argument);
}
static int fault_sector(sqlite3_file *f) {
    return real_of(f)->pMethods->xSectorSize(real_of(f));
}
static int fault_traits(sqlite3_file *f) {
    return real_of(f)->pMethods->xDeviceCharacteristics(real_of(f));
}
static int fault_shm_map(sqlite3_file *f, int region, int size, int extend, void volatile **out) {
    return real_of(f)->pMethods->xShmMap(real_of(f), region, size, extend, out);
}
static int fault_shm_lock(sqlite3_file *f, int offset, int n, int flags) {
    return real_of(f)->pMethods->xShmLock(real_of(f), offset, n, flags);
}
static void fault_shm_barrier(sqlite3_file *f) {
    real_of(f)->pMethods->xShmBarrier(real_of(f));
}
static int fault_shm_unmap(sqlite3_file *f, int remove) {
    return real_of(f)->pMethods->xShmUnmap(real_of(f), remove);
}

static int fault_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *file, int flags,
                      int *out_flags) {
    struct fault_file *ours = (struct fault_file *)(void *)file;
    (void)vfs;
    memset(ours, 0, sizeof(*ours));
    int code = fault.real->xOpen(fault.real, name, real_of(file), flags, out_flags);
    if (real_of(file)->pMethods != NULL) {
        ours->methods = (sqlite3_io_methods){.iVersion = 2,
                                             .xClose = fault_close,
                                             .xRead = fault_read,
                                             .xWrite = fault_write,
                                             .xTruncate = fault_truncate,
                                             .xSync = fault_sync,
                                             .xFileSize = fault_size,
                                             .xLock = fault_lock,
                                             .xUnlock = fault_unlock,
                                             .xCheckReservedLock = fault_reserved,
                                             .xFileControl = fault_control,
                                             .xSectorSize = fault_sector,
                                             .xDeviceCharacteristics = fault_traits,
                                             .xShmMap = fault_shm_map,
                                             .xShmLock = fault_shm_lock,
                                             .xShmBarrier = fault_shm_barrier,
                                             .xShmUnmap = fault_shm_unmap};
        file->pMethods = &ours->methods;
    }
    return code;
}

void fault_vfs_install(void) {
    fault.real = sqlite3_vfs_find(NULL);
    assert_non_null(fault.real);
    fault.vfs = *fault.real;
    fault.vfs.zName = "fault";
    fault.vfs.pNext = NULL;
    fault.vfs.szOsFile = fault.real->szOsFile + (int)sizeof(struct fault_file);
    fault.vfs.xOpen = fault_open;
    (void)fault_vfs_stop();
    assert_int_equal(sqlite3_vfs_register(&fault.vfs, 1), SQLITE_OK);
}

void fault_vfs_fail_after(int n, int n_failing, int code) {
    atomic_store(&fault.code, code);
    atomic_store(&fault.n_failed, 0);
    atomic_store(&fault.n_failing, n_failing);
    atomic_store(&fault.n_before, n);
}

int fault_vfs_stop(void) {
    atomic_store(&fault.n_failing, 0);
    atomic_store(&fault.n_before, INT_MAX);
    return atomic_load(&fault.n_failed);
}

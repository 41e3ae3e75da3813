/* A libnvidia-ml.so.1 that returns the values in a text file.
 *
 * FAKE_NVML_STATE is the path of the file. Each line is a key and a value. A key is the name of an NVML call without
 * "nvml", "nvmlDeviceGet" or "nvmlSystemGet", after the device and before the arguments of the call:
 *
 *     DriverVersion 570.86.15              a call about the system
 *     gpu.EccMode 1 1                      every GPU, unless there is a line for gpu0
 *     gpu0.ClockInfo.1 1980                nvmlDeviceGetClockInfo(first GPU, NVML_CLOCK_SM)
 *     gpu0.mig0.UUID MIG-...               the first MIG device of the first GPU, which uses only its own lines
 *     gpu0.MemoryInfo_v2 !25               a version of a call; without this line, the one without a version is used
 *     gpu0 !15                             every call about this device
 *
 * A value that begins with "!15" makes the call fail with that code. "!15*3" does so three times; after that, the rest
 * of the value or, if it is empty, other lines apply. "!hang" blocks until the line changes, and "!crash" crashes the
 * process. A call without a line is not supported. A number may move: "1000+250@77.5" is 1000 at 77.5 s of the clock,
 * plus 250 per second. The clock is CLOCK_MONOTONIC, or the line "Clock" if there is one. -1 is NVML's "not available",
 * all bits one. A moving number wraps at the width of its type.
 *
 * A line "Load" moves the power, the energy, the utilization and, if it says so, the memory of a GPU:
 *
 *     gpu0.Load 100 700 0.02 random 7 0.3  100 W when idle, 700 W when busy; the counter moves every 0.02 s; busy at a
 *                                          random level for 0.3 s each, by a hash of the slot of time, 7 and the GPU
 *     gpu0.Load 100 700 0.02 constant 0.5  always half busy
 *     gpu0.Load 100 700 0.02 follow PATH   as busy as the file says: for each change a record of three doubles: the
 *                                          time, the level since then, and the seconds busy until then; a program
 *                                          locks the file (flock) while it takes the time and appends a record
 *     gpu0.LoadStamp call                  the time of the energy (field 83) is that of the call, not of the counter
 *     gpu0.LoadMemory 8000000000           what a busy GPU uses in addition to the line MemoryInfo
 *
 * The time is CLOCK_REALTIME or the line "Clock". Power is the mean of the last second (PowerUsage, field 185) or that
 * of the moment (186). The energy (TotalEnergyConsumption, 83) is exact at the last multiple of the period; 0 is no
 * period. Utilization is the mean of the last full 167 ms. A line for one of these calls wins over the load.
 * `load.py` has the same functions.
 *
 * The file is read again when it is replaced, also during calls. If it cannot be read, the driver is not loaded.
 * FAKE_NVML_CALLS is the path of a file to which each call appends its key. fakeNvmlCalls(), which is not NVML's,
 * returns how many calls the calling thread has made.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifndef _WIN32
#include <sys/file.h>
#endif
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

typedef unsigned int u32;
typedef unsigned long long u64;

enum {
    SUCCESS, UNINITIALIZED, INVALID_ARGUMENT, NOT_SUPPORTED, NOT_FOUND = 6, INSUFFICIENT_SIZE, DRIVER_NOT_LOADED = 9,
    TIMEOUT, NO_DATA = 21, VERSION_MISMATCH = 25, INVALID_STATE = 29,
    ABSENT = -1, HANG = -2, /* not NVML's: no line says anything; do not return */
};
enum { GPUS = 64, PARTS = 8, METRICS = 512, KEY = 96 };

typedef struct { int gpu, part; } Device; /* part: the MIG device's number, -1 for the whole GPU */
typedef struct { char *key, *value; int left; } Line;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards all that follows */
static int users;                                        /* nvmlInit less nvmlShutdown */
static Line *lines;
static size_t line_count;
static struct stat seen;
static Device devices[GPUS][PARTS + 1];

/* ---- the file ---- */

static int by_key(const void *a, const void *b) { return strcmp(((const Line *)a)->key, ((const Line *)b)->key); }

static Line *line(const char *key) {
    Line wanted = {.key = (char *)key};
    return line_count ? bsearch(&wanted, lines, line_count, sizeof *lines, by_key) : NULL;
}

/* The number of failures in "!15*3". */
static int times(const char *value) {
    const char *star = *value == '!' ? value + strcspn(value, "* ") : "";
    return *star == '*' ? atoi(star + 1) : -1;
}

static void parse(char *text) {
    Line *fresh = NULL;
    size_t count = 0;
    for (char *rest = text, *each; (each = strsep(&rest, "\n"));) {
        size_t length = strcspn(each, " ");
        if (!length) continue;
        char *value = each[length] ? each + length + 1 : each + length;
        each[length] = 0;
        Line *before = line(each);
        /* A line that stays as it was goes on counting. */
        int left = before && !strcmp(before->value, value) ? before->left : times(value);
        fresh = realloc(fresh, (count + 1) * sizeof *fresh);
        fresh[count++] = (Line){strdup(each), strdup(value), left};
    }
    for (size_t i = 0; i < line_count; i++) free(lines[i].key), free(lines[i].value);
    free(lines);
    qsort(fresh, count, sizeof *fresh, by_key);
    lines = fresh, line_count = count;
}

static void refresh(void) {
    const char *path = getenv("FAKE_NVML_STATE");
    struct stat now;
    if (!path || stat(path, &now)) return;
#ifndef _WIN32 /* where the time of a change is in seconds: the file is read again at each call */
    if (lines && now.st_ino == seen.st_ino && now.st_mtim.tv_sec == seen.st_mtim.tv_sec &&
        now.st_mtim.tv_nsec == seen.st_mtim.tv_nsec)
        return;
#endif
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return;
    fstat(file, &now);
    char *text = calloc(1, now.st_size + 1);
    if (read(file, text, now.st_size) == now.st_size) {
        parse(text);
        seen = now;
    }
    free(text);
    close(file);
}

static double seconds(clockid_t clock) {
    const Line *fixed = line("Clock");
    struct timespec now;
    if (fixed) return strtod(fixed->value, NULL);
    clock_gettime(clock, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}

/* ---- one call: enter, read the state, leave ---- */

/* The code of a line and, in `value`, its value; ABSENT if it only fails and has failed often enough. */
static int said(Line *from, const char **value) {
    *value = from->value;
    if (*from->value != '!') return SUCCESS;
    if (from->left) {
        if (from->left > 0) from->left--;
        if (!strncmp(from->value, "!crash", 6)) raise(SIGSEGV);
        return strncmp(from->value, "!hang", 5) ? atoi(from->value + 1) : HANG;
    }
    *value += strcspn(*value, " ");
    *value += strspn(*value, " ");
    return **value ? SUCCESS : ABSENT;
}

static char *composed(char *key, const char *format, ...) {
    va_list parts;
    va_start(parts, format);
    vsnprintf(key, KEY, format, parts);
    va_end(parts);
    return key;
}
#define COMPOSED(...) composed((char[KEY]){0}, __VA_ARGS__)

/* The code of the line with this key; ABSENT if there is none. */
static int ask(const char **value, const char *key) {
    Line *found = line(key);
    return found ? said(found, value) : ABSENT;
}

/* The code of a call: from the line of its device, of the call with its version, or of the call without. */
static int verdict(const Device *d, const char *key, const char **value) {
#define TRY(...) if ((code = ask(value, COMPOSED(__VA_ARGS__))) != ABSENT) return code
    char plain[KEY];
    char *version = strstr(strcpy(plain, key), "_v");
    if (version) memmove(version, version + 3, strlen(version + 3) + 1);
    const char *keys[] = {key, plain};
    int code;
    if (d) {
        TRY("gpu");
        TRY("gpu%d", d->gpu);
        if (d->part >= 0) TRY("gpu%d.mig%d", d->gpu, d->part);
    }
    for (int k = 0; k < 2; k++)
        if (!d) {
            TRY("%s", keys[k]);
        } else if (d->part >= 0) {
            TRY("gpu%d.mig%d.%s", d->gpu, d->part, keys[k]);
        } else {
            TRY("gpu%d.%s", d->gpu, keys[k]);
            TRY("gpu.%s", keys[k]);
        }
    return ABSENT;
}

static __thread u64 made; /* calls of this thread */
u64 fakeNvmlCalls(void) { return made; }

static void note(const Device *d, const char *key) {
    made++;
    const char *path = getenv("FAKE_NVML_CALLS");
    int file = path ? open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666) : -1;
    if (file < 0) return;
    if (!d) dprintf(file, "%s\n", key);
    else if (d->part < 0) dprintf(file, "gpu%d.%s\n", d->gpu, key);
    else dprintf(file, "gpu%d.mig%d.%s\n", d->gpu, d->part, key);
    close(file);
}

/* Let other calls run for two milliseconds, and read the file again. */
static void wait_a_little(void) {
    pthread_mutex_unlock(&lock);
    nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    pthread_mutex_lock(&lock);
    refresh();
}

/* The verdict, once it is not to hang. */
static int settled(const Device *d, const char *key, const char **value) {
    int code;
    while ((code = verdict(d, key, value)) == HANG) wait_a_little();
    return code;
}

/* Begin a call: record it, take the lock and return its code and value; ABSENT if there is no line. */
static int begin(const Device *d, const char **value, const char *key) {
    note(d, key);
    pthread_mutex_lock(&lock);
    refresh();
    return users || !strcmp(key, "Init") ? settled(d, key, value) : UNINITIALIZED;
}

/* End a call. A call without a line is not supported. */
static int end(int code) {
    pthread_mutex_unlock(&lock);
    return code == ABSENT ? NOT_SUPPORTED : code;
}

/* End a call that works unless a line makes it fail. */
static int end_allowed(int code) { return end(code == ABSENT ? SUCCESS : code); }

/* A call that has an effect and works unless a line makes it fail. */
#define DO(effect, device, key) \
    const char *value; \
    int code = begin(device, &value, key); \
    if (code == ABSENT) effect; \
    return end_allowed(code)

/* ---- values ---- */

/* The time of moving numbers while several are taken as of one moment; 0: now. */
static __thread double moment;

/* The increase of a moving number until now. */
static double gained(const char **text) {
    if (**text != '+') return 0;
    char *next;
    double rate = strtod(*text + 1, &next), since = *next == '@' ? strtod(next + 1, &next) : 0;
    *text = next;
    return rate * ((moment ? moment : seconds(CLOCK_MONOTONIC)) - since);
}

static int whole(const char **text, u64 *number) {
    char *next;
    *number = strtoull(*text, &next, 0);
    if (next == *text) return 0;
    *text = next;
    *number += (long long)gained(text);
    return 1;
}

static int real(const char **text, double *number) {
    char *next;
    *number = strtod(*text, &next);
    if (next == *text) return 0;
    *text = next;
    *number += gained(text);
    return 1;
}

/* The next word of a list, "pid:bytes:..." and the like: up to `most` numbers, all ones where it has fewer. */
static int item(const char **text, u64 *numbers, int most) {
    *text += strspn(*text, " ");
    if (!**text) return 0;
    for (int i = 0; i < most; i++) {
        numbers[i] = -1;
        if (i && **text != ':') continue;
        if (i) ++*text;
        whole(text, &numbers[i]);
    }
    *text += strcspn(*text, " ");
    return 1;
}

/* ---- load: power and utilization as functions of time ---- */

static const double ORIGIN = 1700000000, WINDOW = 0.167; /* times here are seconds since ORIGIN */
enum { HALF = 32 };

typedef struct {
    double base, peak, period; /* watts, watts, seconds */
    double slot, level;        /* of a random load; of a constant one */
    u64 seed;
    int gpu, file, count; /* file: of a load that follows a program, or -1; count: its records */
    double now;
} Load;
typedef struct { double time, level, busy; } Change;

/* The level of a slot of time, 0 to 1. Of each 64 slots, the second half mirrors the first: their sum is known. */
static double random_level(const Load *l, int64_t slot) {
    u64 place = (u64)slot % (2 * HALF), mirrored = place >= HALF;
    u64 z = (u64)(slot - (mirrored ? HALF : 0)) * 0x9E3779B97F4A7C15 + l->seed * 0xD1342543DE82EF95 +
            (u64)(l->gpu + 1) * 0xA0761D6478BD642F;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9; /* splitmix64 */
    z = (z ^ z >> 27) * 0x94D049BB133111EB;
    double level = ((z ^ z >> 31) >> 11) / 9007199254740992.0;
    return mirrored ? 1 - level : level;
}

/* The change of level that holds at a time; none is a change to 0. */
static Change change_at(const Load *l, double time) {
    Change found = {time, 0, 0}, each;
    for (int low = 0, high = l->count; low < high;) {
        int middle = (low + high) / 2;
        if (pread(l->file, &each, sizeof each, middle * sizeof each) != sizeof each) break;
        each.time -= ORIGIN;
        if (each.time <= time) found = each, low = middle + 1;
        else high = middle;
    }
    return found;
}

static double level_at(const Load *l, double time) {
    if (l->slot > 0) return random_level(l, floor(time / l->slot));
    return l->file < 0 ? l->level : change_at(l, time).level;
}

/* The seconds that the GPU was busy until a time. */
static double busy_until(const Load *l, double time) {
    if (l->slot > 0) {
        int64_t slot = floor(time / l->slot), first = slot - (u64)slot % (2 * HALF);
        double levels = first / 2;
        for (int64_t each = first; each < slot; each++) levels += random_level(l, each);
        return levels * l->slot + random_level(l, slot) * (time - slot * l->slot);
    }
    if (l->file < 0) return l->level * time;
    Change last = change_at(l, time);
    return last.busy + last.level * (time - last.time);
}

static u64 milli(const Load *l, double seconds, double busy) {
    return (long long)(1e3 * (l->base * seconds + (l->peak - l->base) * busy));
}

static double of_last(const Load *l, double seconds, double until) {
    return (busy_until(l, until) - busy_until(l, until - seconds)) / seconds;
}

static double step(double time, double period) { return period > 0 ? floor(time / period) * period : time; }

static const Line *load_line(const Device *d, const char *key) {
    const Line *found = d && d->part < 0 ? line(COMPOSED("gpu%d.%s", d->gpu, key)) : NULL;
    return found || !d || d->part >= 0 ? found : line(COMPOSED("gpu.%s", key));
}

/* Begin to use the load of a device; its file stays locked until `close_load`. */
static int open_load(const Device *d, Load *l) {
    const Line *from = load_line(d, "Load");
    char kind[16], of[256];
    if (!from) return ABSENT;
    *l = (Load){.gpu = d->gpu, .file = -1};
    int words = sscanf(from->value, "%lf %lf %lf %15s %255s %lf", &l->base, &l->peak, &l->period, kind, of, &l->slot);
    if (words == 6 && !strcmp(kind, "random") && l->slot > 0) {
        l->seed = strtoull(of, NULL, 0);
    } else if (words == 5 && !strcmp(kind, "constant")) {
        l->level = strtod(of, NULL);
    } else if (words == 5 && !strcmp(kind, "follow") && (l->file = open(of, O_RDONLY | O_CLOEXEC)) >= 0) {
        struct stat now;
#ifndef _WIN32
        flock(l->file, LOCK_SH);
#endif
        fstat(l->file, &now);
        l->count = now.st_size / sizeof(Change);
    } else {
        return INVALID_STATE;
    }
    l->now = seconds(CLOCK_REALTIME) - ORIGIN;
    return SUCCESS;
}

static void close_load(const Load *l) {
    if (l->file >= 0) close(l->file);
}

/* The numbers that a load gives for a call, and their time; ABSENT if it gives none. */
static int loaded(const Device *d, const char *key, u64 out[2], double *when) {
    static const char *const keys[] = {"PowerUsage", "FieldValues.185", "FieldValues.186", "UtilizationRates",
                                       "TotalEnergyConsumption", "FieldValues.83"};
    size_t call = 0;
    Load l;
    while (call < 6 && strcmp(key, keys[call])) call++;
    int code = call < 6 ? open_load(d, &l) : ABSENT;
    if (code != SUCCESS) return code;
    double updated = step(l.now, l.period);
    *when = ORIGIN + (call < 5 || load_line(d, "LoadStamp") ? l.now : updated);
    switch (call) {
    case 0: case 1: out[0] = milli(&l, 1, of_last(&l, 1, l.now)); break;
    case 2: out[0] = milli(&l, 1, level_at(&l, l.now)); break;
    case 3:
        out[0] = lround(100 * of_last(&l, WINDOW, step(l.now, WINDOW)));
        out[1] = out[0] / 2;
        break;
    default: out[0] = milli(&l, updated, busy_until(&l, updated));
    }
    close_load(&l);
    return code;
}

/* The bytes that the load of a device uses. */
static u64 loaded_memory(const Device *d) {
    Load l;
    double bytes = 0;
    pthread_mutex_lock(&lock);
    const Line *most = load_line(d, "LoadMemory");
    if (most && open_load(d, &l) == SUCCESS) {
        bytes = strtod(most->value, NULL) * level_at(&l, l.now);
        close_load(&l);
    }
    pthread_mutex_unlock(&lock);
    return bytes;
}

/* ---- the shapes of calls ---- */

/* A call that hands out numbers: each of `out`, up to NULL, is `width` bytes wide. */
static int tell(const Device *d, size_t width, void *const *out, const char *key) {
    const char *value;
    double when;
    u64 numbers[2];
    int code = begin(d, &value, key);
    if (code == ABSENT && (code = loaded(d, key, numbers, &when)) == SUCCESS) {
        for (int i = 0; out[i]; i++) memcpy(out[i], &numbers[i], width);
        return end(code);
    }
    for (u64 number; code == SUCCESS && *out; out++) {
        if (!whole(&value, &number)) code = INVALID_STATE;
        else memcpy(*out, &number, width); /* the low bytes: little endian */
    }
    return end(code);
}
#define OUT(...) ((void *const[]){__VA_ARGS__, NULL})

static int text(const Device *d, const char *key, char *out, u32 room) {
    const char *value;
    int code = begin(d, &value, key);
    if (code == SUCCESS && strlen(value) >= room) code = INSUFFICIENT_SIZE;
    if (code == SUCCESS) strcpy(out, value);
    return end(code);
}

/* ---- the library and its devices ---- */

int nvmlInitWithFlags(u32 flags) {
    const char *value;
    int code = begin(NULL, &value, "Init");
    (void)flags;
    if (code == ABSENT) code = lines ? SUCCESS : DRIVER_NOT_LOADED;
    if (code == SUCCESS) users++;
    return end(code);
}
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlInit(void) { return nvmlInitWithFlags(0); }

int nvmlShutdown(void) {
    DO(users--, NULL, "Shutdown");
}

const char *nvmlErrorString(int code) {
    static const char *const texts[] = {
        "Success", "Uninitialized", "Invalid Argument", "Not Supported", "Insufficient Permissions",
        "Already Initialized", "Not Found", "Insufficient Size", "Insufficient External Power", "Driver Not Loaded",
        "Timeout", "Interrupt Request Issue", "NVML Shared Library Not Found", "Function Not Found",
        "Corrupted infoROM", "GPU is lost", "GPU requires reset", "The operating system has blocked the request.",
        "Driver/library version mismatch", "In use by another client", "Insufficient Memory", "No data",
        "vGPU ECC not supported", "Insufficient resources", "Frequency not supported",
        "Argument version mismatch", "Deprecated", "Not ready", "GPU not found", "Invalid state"};
    return code >= 0 && code < (int)(sizeof texts / sizeof *texts) ? texts[code] : "Unknown Error";
}

int nvmlSystemGetDriverVersion(char *out, u32 room) { return text(NULL, "DriverVersion", out, room); }
int nvmlSystemGetNVMLVersion(char *out, u32 room) { return text(NULL, "NVMLVersion", out, room); }
int nvmlSystemGetCudaDriverVersion(u32 *out) { return tell(NULL, 4, OUT(out), "CudaDriverVersion"); }
int nvmlSystemGetCudaDriverVersion_v2(u32 *out) { return tell(NULL, 4, OUT(out), "CudaDriverVersion_v2"); }
int nvmlDeviceGetCount_v2(u32 *out) { return tell(NULL, 4, OUT(out), "Count"); }
int nvmlDeviceGetCount(u32 *out) { return nvmlDeviceGetCount_v2(out); }

/* The devices are numbers in a table, made at the first question for one. */
static Device *device(int gpu, int part) {
    Device *d = &devices[gpu][part + 1];
    *d = (Device){gpu, part};
    return d;
}

static u64 count(void) {
    const char *value;
    u64 number = 0;
    if (ask(&value, "Count") == SUCCESS) whole(&value, &number);
    return number < GPUS ? number : GPUS;
}

int nvmlDeviceGetHandleByIndex_v2(u32 index, Device **out) {
    Device wanted = {index, -1};
    const char *value;
    int code = begin(index < GPUS ? &wanted : NULL, &value, "HandleByIndex");
    if (code == ABSENT && index >= count()) code = INVALID_ARGUMENT;
    if (code == ABSENT) *out = device(index, -1);
    return end_allowed(code);
}

int nvmlDeviceGetHandleByUUID(const char *uuid, Device **out) {
    const char *value;
    int code = begin(NULL, &value, "HandleByUUID");
    if (code == ABSENT) code = NOT_FOUND;
    for (u64 gpu = 0; code == NOT_FOUND && gpu < count(); gpu++)
        for (int part = -1; code == NOT_FOUND && part < PARTS; part++)
            if (verdict(&(Device){gpu, part}, "UUID", &value) == SUCCESS && !strcmp(value, uuid)) {
                *out = device(gpu, part);
                code = SUCCESS;
            }
    return end(code);
}

int nvmlDeviceGetIndex(Device *d, u32 *out) {
    DO(*out = d->part < 0 ? d->gpu : d->part, d, "Index");
}

typedef struct { char legacy[16]; u32 domain, bus, device, id, subsystem; char address[32]; } Pci;
int nvmlDeviceGetPciInfo_v3(Device *d, Pci *out) {
    const char *value;
    int code = begin(d, &value, "PciInfo_v3"); /* "0000:1a:00.0 0x233010de 0x16c110de" */
    memset(out, 0, sizeof *out);
    if (code == SUCCESS && sscanf(value, "%x:%x:%x.0 %x %x", &out->domain, &out->bus, &out->device, &out->id,
                                  &out->subsystem) < 4)
        code = INVALID_STATE;
    snprintf(out->legacy, sizeof out->legacy, "%04X:%02X:%02X.0", out->domain & 0xffff, out->bus & 0xff,
             out->device & 0xff);
    snprintf(out->address, sizeof out->address, "%08X:%02X:%02X.0", out->domain, out->bus & 0xff, out->device & 0xff);
    return end(code);
}

/* ---- the many calls of one shape ---- */

#define TEXT(name) \
    int nvmlDeviceGet##name(Device *d, char *out, u32 room) { return text(d, #name, out, room); }
#define ONE(name) \
    int nvmlDeviceGet##name(Device *d, u32 *out) { return tell(d, 4, OUT(out), #name); }
#define LONG(name) \
    int nvmlDeviceGet##name(Device *d, u64 *out) { return tell(d, 8, OUT(out), #name); }
#define TWO(name) \
    int nvmlDeviceGet##name(Device *d, u32 *a, u32 *b) { return tell(d, 4, OUT(a, b), #name); }
#define ONE_OF(name) \
    int nvmlDeviceGet##name(Device *d, u32 of, u32 *out) { return tell(d, 4, OUT(out), COMPOSED(#name ".%u", of)); }
#define ONE_OF_TWO(name) \
    int nvmlDeviceGet##name(Device *d, u32 of, u32 and, u32 *out) { \
        return tell(d, 4, OUT(out), COMPOSED(#name ".%u.%u", of, and)); \
    }
#define LONG_OF_TWO(name) \
    int nvmlDeviceGet##name(Device *d, u32 of, u32 and, u64 *out) { \
        return tell(d, 8, OUT(out), COMPOSED(#name ".%u.%u", of, and)); \
    }

TEXT(Name) TEXT(UUID) TEXT(Serial) TEXT(VbiosVersion) TEXT(BoardPartNumber) TEXT(GspFirmwareVersion)
ONE(MinorNumber) ONE(Brand) ONE(Architecture) ONE(BoardId) ONE(MultiGpuBoard) ONE(NumGpuCores) ONE(MemoryBusWidth)
ONE(PersistenceMode) ONE(ComputeMode) ONE(DisplayMode) ONE(DisplayActive) ONE(PerformanceState)
TWO(CudaComputeCapability) TWO(DriverModel) TWO(DriverModel_v2)
ONE(PowerUsage) ONE(EnforcedPowerLimit) ONE(PowerManagementMode) ONE(PowerManagementLimit)
ONE(PowerManagementDefaultLimit) TWO(PowerManagementLimitConstraints) LONG(TotalEnergyConsumption)
ONE_OF(Temperature) ONE_OF(TemperatureThreshold)
ONE_OF(ClockInfo) ONE_OF(MaxClockInfo) ONE_OF(ApplicationsClock) ONE_OF_TWO(Clock)
LONG(CurrentClocksEventReasons) LONG(CurrentClocksThrottleReasons) LONG(SupportedClocksEventReasons)
LONG(SupportedClocksThrottleReasons) LONG(SupportedEventTypes)
TWO(EncoderUtilization) TWO(DecoderUtilization) TWO(JpgUtilization) TWO(OfaUtilization)
ONE(NumFans) ONE(FanSpeed) ONE_OF(FanSpeed_v2)
ONE(CurrPcieLinkGeneration) ONE(CurrPcieLinkWidth) ONE(MaxPcieLinkGeneration) ONE(MaxPcieLinkWidth)
ONE(PcieReplayCounter) ONE_OF(PcieThroughput)
ONE_OF(NvLinkState) ONE_OF(NvLinkVersion) LONG_OF_TWO(NvLinkErrorCounter)
TWO(EccMode) LONG_OF_TWO(TotalEccErrors) ONE(RetiredPagesPendingStatus)
TWO(MigMode) ONE(MaxMigDeviceCount) ONE(GpuInstanceId) ONE(ComputeInstanceId)

int nvmlDeviceGetMemoryErrorCounter(Device *d, u32 type, u32 counter, u32 place, u64 *out) {
    return tell(d, 8, OUT(out), COMPOSED("MemoryErrorCounter.%u.%u.%u", type, counter, place));
}
int nvmlDeviceGetUtilizationRates(Device *d, u32 out[2]) {
    return tell(d, 4, OUT(out, out + 1), "UtilizationRates");
}
int nvmlDeviceGetBAR1MemoryInfo(Device *d, u64 out[3]) {
    return tell(d, 8, OUT(out, out + 1, out + 2), "BAR1MemoryInfo");
}
int nvmlDeviceGetViolationStatus(Device *d, u32 policy, u64 out[2]) {
    return tell(d, 8, OUT(out, out + 1), COMPOSED("ViolationStatus.%u", policy));
}
int nvmlDeviceGetRemappedRows(Device *d, u32 *corrected, u32 *uncorrected, u32 *pending, u32 *failed) {
    return tell(d, 4, OUT(corrected, uncorrected, pending, failed), "RemappedRows");
}

/* Structures that begin with their version: a size and a number. */

typedef struct { u32 version, of, out; } One;
int nvmlDeviceGetTemperatureV(Device *d, One *t) {
    return t->version == 0x100000C ? tell(d, 4, OUT(&t->out), COMPOSED("TemperatureV.%u", t->of)) : VERSION_MISMATCH;
}
int nvmlDeviceGetFanSpeedRPM(Device *d, One *f) {
    return f->version == 0x100000C ? tell(d, 4, OUT(&f->out), COMPOSED("FanSpeedRPM.%u", f->of)) : VERSION_MISMATCH;
}
int nvmlDeviceGetMarginTemperature(Device *d, u32 t[2]) {
    return t[0] == 0x1000008 ? tell(d, 4, OUT(t + 1), "MarginTemperature") : VERSION_MISMATCH;
}

typedef struct { u32 version, channel, tpc; } Repair;
int nvmlDeviceGetRepairStatus(Device *d, Repair *r) {
    return r->version == 0x100000C ? tell(d, 4, OUT(&r->channel, &r->tpc), "RepairStatus") : VERSION_MISMATCH;
}
int nvmlDeviceGetUnrepairableMemoryFlag_v1(Device *d, u32 flag[2]) {
    return flag[0] == 0x1000008 ? tell(d, 4, OUT(flag + 1), "UnrepairableMemoryFlag_v1") : VERSION_MISMATCH;
}
typedef struct { u32 version; u64 counts[11]; u64 exceeded; } Sram; /* its last member is a flag of 32 bits */
int nvmlDeviceGetSramEccErrorStatus(Device *d, Sram *s) {
    u64 *c = s->counts;
    if (s->version != 0x1000068) return VERSION_MISMATCH;
    return tell(d, 8, OUT(c, c + 1, c + 2, c + 3, c + 4, c + 5, c + 6, c + 7, c + 8, c + 9, c + 10, &s->exceeded),
                "SramEccErrorStatus");
}
/* The identity of the cluster stays zero. The state is a byte, before three of padding. */
typedef struct { u32 version; unsigned char cluster[16]; u32 status, clique, state, health; } Fabric;
int nvmlDeviceGetGpuFabricInfoV(Device *d, Fabric *f) {
    if (f->version != 0x2000024) return VERSION_MISMATCH;
    return tell(d, 4, OUT(&f->status, &f->clique, &f->state, &f->health), "GpuFabricInfoV");
}

/* The state's order is total, reserved, free, used; the older call counts what is reserved as used. */
int nvmlDeviceGetMemoryInfo(Device *d, u64 out[3]) {
    u64 reserved = 0;
    int code = tell(d, 8, OUT(out, &reserved, out + 1, out + 2), "MemoryInfo");
    if (code == SUCCESS && out[2] != (u64)-1) {
        u64 used = loaded_memory(d);
        out[1] -= used;
        out[2] += used + reserved;
    }
    return code;
}
typedef struct { u32 version; u64 total, reserved, free, used; } Memory;
int nvmlDeviceGetMemoryInfo_v2(Device *d, Memory *m) {
    if (m->version != 0x2000028) return VERSION_MISMATCH;
    int code = tell(d, 8, OUT(&m->total, &m->reserved, &m->free, &m->used), "MemoryInfo_v2");
    if (code == SUCCESS && m->used != (u64)-1) {
        u64 used = loaded_memory(d);
        m->free -= used;
        m->used += used;
    }
    return code;
}

/* ---- parts: MIG devices ---- */

int nvmlDeviceGetMigDeviceHandleByIndex(Device *d, u32 index, Device **out) {
    const char *value;
    int code = begin(d, &value, "MigDeviceHandleByIndex");
    if (code == ABSENT && index >= PARTS) code = INVALID_ARGUMENT;
    if (code == ABSENT && ask(&value, COMPOSED("gpu%d.mig%u.UUID", d->gpu, index)) == ABSENT) code = NOT_FOUND;
    if (code == ABSENT) *out = device(d->gpu, index);
    return end_allowed(code);
}
int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(Device *part, Device **out) {
    DO(*out = device(part->gpu, -1), part, "DeviceHandleFromMigDeviceHandle");
}
int nvmlDeviceIsMigDeviceHandle(Device *d, u32 *out) {
    const char *value;
    int code = begin(d, &value, "IsMigDeviceHandle");
    *out = d->part >= 0;
    return end_allowed(code);
}
typedef struct { u32 counts[8]; u64 mib; } Attributes;
int nvmlDeviceGetAttributes_v2(Device *d, Attributes *a) {
    u32 *c = a->counts;
    a->mib = 0;
    return tell(d, 4, OUT(c, c + 1, c + 2, c + 3, c + 4, c + 5, c + 6, c + 7, &a->mib), "Attributes_v2");
}

/* ---- lists ---- */

typedef struct { u32 pid; u64 bytes; } Narrow;
typedef struct { u32 pid; u64 bytes; u32 gpu_instance, compute_instance; } Wide;

/* Words "pid:bytes:gpu instance:compute instance"; an empty line is an empty list. */
static int processes(Device *d, u32 *count, Narrow *narrow, Wide *wide, const char *key) {
    const char *value;
    u64 n[4];
    u32 found = 0, room = narrow || wide ? *count : 0;
    int code = begin(d, &value, key);
    for (; code == SUCCESS && item(&value, n, 4); found++) {
        if (found >= room) continue;
        if (narrow) narrow[found] = (Narrow){n[0], n[1]};
        else wide[found] = (Wide){n[0], n[1], n[2], n[3]};
    }
    if (code == SUCCESS) *count = found;
    return end(found > room ? INSUFFICIENT_SIZE : code);
}
#define PROCESSES(name) \
    int nvmlDeviceGet##name(Device *d, u32 *n, Narrow *out) { return processes(d, n, out, NULL, #name); } \
    int nvmlDeviceGet##name##_v2(Device *d, u32 *n, Wide *out) { return processes(d, n, NULL, out, #name "_v2"); } \
    int nvmlDeviceGet##name##_v3(Device *d, u32 *n, Wide *out) { return processes(d, n, NULL, out, #name "_v3"); }
PROCESSES(ComputeRunningProcesses) PROCESSES(GraphicsRunningProcesses) PROCESSES(MPSComputeRunningProcesses)

typedef struct { u32 pid; u64 time; u32 sm, memory, encoder, decoder; } Share;

/* Words "pid:microseconds:sm:memory:encoder:decoder". */
int nvmlDeviceGetProcessUtilization(Device *d, Share *out, u32 *count, u64 after) {
    const char *value;
    u64 n[6];
    u32 found = 0, room = out ? *count : 0;
    int code = begin(d, &value, "ProcessUtilization");
    while (code == SUCCESS && item(&value, n, 6)) {
        if (n[1] <= after) continue;
        if (found < room) out[found] = (Share){n[0], n[1], n[2], n[3], n[4], n[5]};
        found++;
    }
    if (code == SUCCESS) *count = found;
    if (code == SUCCESS && !found) code = NOT_FOUND;
    return end(found > room ? INSUFFICIENT_SIZE : code);
}

/* NVML's value types by name, and a value of one. A counter wraps at the width of its type. */
typedef union { double real; u64 whole; } Value;
static int typed(const char **text, u32 *type, Value *out) {
    static const char *const names[] = {"double", "uint", "ulong", "ullong", "llong", "int", "ushort"};
    static const u64 masks[] = {-1, 0xFFFFFFFF, -1, -1, -1, 0xFFFFFFFF, 0xFFFF};
    size_t length = strcspn(*text, " ");
    for (*type = 0; *type < 7; ++*type)
        if (strlen(names[*type]) == length && !strncmp(*text, names[*type], length)) {
            *text += length + strspn(*text + length, " ");
            if (!out) return 1;
            if (!*type) return real(text, &out->real);
            int read = whole(text, &out->whole);
            out->whole &= masks[*type];
            return read;
        }
    return 0;
}

/* A value type, and words "microseconds:value". */
typedef struct { u64 time; Value value; } Moment;
int nvmlDeviceGetSamples(Device *d, u32 kind, u64 after, u32 *type, u32 *count, Moment *out) {
    const char *value;
    u64 n[2];
    u32 found = 0, room = out ? *count : 0;
    int code = begin(d, &value, COMPOSED("Samples.%u", kind));
    if (code == SUCCESS && !typed(&value, type, NULL)) code = INVALID_STATE;
    while (code == SUCCESS && item(&value, n, 2)) {
        if (n[0] <= after) continue;
        if (found < room) out[found] = (Moment){n[0], *type ? (Value){.whole = n[1]} : (Value){.real = n[1]}};
        found++;
    }
    if (code == SUCCESS) *count = found;
    if (code == SUCCESS && !found) code = NOT_FOUND;
    return end(out && found > room ? INSUFFICIENT_SIZE : code);
}

/* Addresses. */
int nvmlDeviceGetRetiredPages(Device *d, u32 cause, u32 *count, u64 *out) {
    const char *value;
    u64 address;
    u32 found = 0, room = out ? *count : 0;
    int code = begin(d, &value, COMPOSED("RetiredPages.%u", cause));
    for (; code == SUCCESS && item(&value, &address, 1); found++)
        if (found < room) out[found] = address;
    if (code == SUCCESS) *count = found;
    return end(found > room ? INSUFFICIENT_SIZE : code);
}

/* "FieldValues.83 ullong 1000": one line for each field, and one for each scope other than 0: "FieldValues.140.3". */
typedef struct { u32 id, scope; long long time, latency; u32 type, code; Value value; } Field;
int nvmlDeviceGetFieldValues(Device *d, int count, Field *fields) {
    const char *value;
    int code = begin(d, &value, "FieldValues");
    for (Field *f = fields; code == ABSENT && f < fields + count; f++) {
        const char *key = COMPOSED(f->scope ? "FieldValues.%u.%u" : "FieldValues.%u", f->id, f->scope);
        int said = settled(d, key, &value);
        double when = seconds(CLOCK_REALTIME);
        u64 numbers[2] = {0};
        f->latency = 0;
        f->value.whole = 0;
        if (said == SUCCESS && !typed(&value, &f->type, &f->value)) said = INVALID_STATE;
        if (said == ABSENT && (said = loaded(d, key, numbers, &when)) == SUCCESS) {
            f->type = f->id == 83 ? 3 : 1; /* ullong, uint */
            f->value.whole = numbers[0];
        }
        f->time = llround(when * 1e6);
        f->code = said == ABSENT ? NOT_SUPPORTED : said;
    }
    return end_allowed(code);
}

/* ---- GPM: metrics between two samples ---- */

/* A sample holds counters; a metric is what its counter gained each second between two samples. The state has
 * "GpmCounter.2 500" for a GPU and "GpmCounter.2 500" of "gpu0.gi1" for a GPU instance. */
typedef struct { int gpu, instance; double time, counters[METRICS]; } Sample;

static void take(Sample *sample, int gpu, int instance) {
    char prefix[3][KEY] = {"gpu.GpmCounter."};
    snprintf(prefix[1], KEY, "gpu%d.GpmCounter.", gpu);
    snprintf(prefix[2], KEY, "gpu%d.gi%d.GpmCounter.", gpu, instance);
    moment = seconds(CLOCK_MONOTONIC);
    *sample = (Sample){gpu, instance, moment, {0}};
    for (int id = 0; id < METRICS; id++) sample->counters[id] = NAN;
    for (int p = instance < 0 ? 0 : 2; p <= (instance < 0 ? 1 : 2); p++)
        for (Line *l = lines; l < lines + line_count; l++) {
            size_t length = strlen(prefix[p]);
            u32 id = strncmp(l->key, prefix[p], length) ? METRICS : atoi(l->key + length);
            const char *value = l->value;
            if (id < METRICS) real(&value, &sample->counters[id]);
        }
    moment = 0;
}

int nvmlGpmQueryDeviceSupport(Device *d, u32 support[2]) {
    return support[0] == 1 ? tell(d, 4, OUT(support + 1), "GpmQueryDeviceSupport") : VERSION_MISMATCH;
}
int nvmlGpmSampleAlloc(Sample **out) {
    DO(*out = calloc(1, sizeof **out), NULL, "GpmSampleAlloc");
}
int nvmlGpmSampleFree(Sample *sample) {
    DO(free(sample), NULL, "GpmSampleFree");
}
int nvmlGpmSampleGet(Device *d, Sample *out) {
    DO(take(out, d->gpu, -1), d, "GpmSampleGet");
}
int nvmlGpmMigSampleGet(Device *d, u32 instance, Sample *out) {
    DO(take(out, d->gpu, instance), d, COMPOSED("GpmMigSampleGet.%u", instance));
}

typedef struct { u32 id, code; double value; const char *short_name, *long_name, *unit; } Metric;
typedef struct { u32 version, count; Sample *first, *second; Metric metrics[]; } Metrics;
int nvmlGpmMetricsGet(Metrics *get) {
    const char *value;
    const Sample *a = get->first, *b = get->second;
    int code = begin(NULL, &value, "GpmMetricsGet");
    if (code == ABSENT && get->version != 1) code = VERSION_MISMATCH;
    if (code == ABSENT && (a->gpu != b->gpu || a->instance != b->instance)) code = INVALID_ARGUMENT;
    for (Metric *m = get->metrics; code == ABSENT && m < get->metrics + get->count; m++) {
        double gain = m->id < METRICS ? b->counters[m->id] - a->counters[m->id] : NAN;
        m->code = isnan(gain) ? NOT_SUPPORTED : b->time > a->time ? SUCCESS : NO_DATA;
        if (m->code == SUCCESS) m->value = gain / (b->time - a->time);
    }
    return end_allowed(code);
}

/* ---- events ---- */

/* "Event.7 0 8 79": the seventh event, on the first GPU, of type 8 (Xid), with its data and perhaps two instances.
 * A set is told each event once, if it was registered for it and the event came after the set was made. */
typedef struct { u64 told, types[GPUS]; } Set;

static const Line *next_event(u64 after) {
    const Line *next = NULL;
    for (const Line *l = lines; l < lines + line_count; l++)
        if (!strncmp(l->key, "Event.", 6) && strtoull(l->key + 6, NULL, 10) > after &&
            (!next || strtoull(l->key + 6, NULL, 10) < strtoull(next->key + 6, NULL, 10)))
            next = l;
    return next;
}

int nvmlEventSetCreate(Set **out) {
    const char *value;
    int code = begin(NULL, &value, "EventSetCreate");
    if (code == ABSENT) {
        *out = calloc(1, sizeof **out);
        for (const Line *l; (l = next_event((*out)->told));) (*out)->told = strtoull(l->key + 6, NULL, 10);
    }
    return end_allowed(code);
}
int nvmlEventSetFree(Set *set) {
    DO(free(set), NULL, "EventSetFree");
}
int nvmlDeviceRegisterEvents(Device *d, u64 types, Set *set) {
    DO(set->types[d->gpu] |= types, d, "RegisterEvents");
}

typedef struct { Device *d; u64 type, data; u32 gpu_instance, compute_instance; } Event;
int nvmlEventSetWait_v2(Set *set, Event *out, u32 milliseconds) {
    const char *value;
    struct timespec began, now;
    int code = begin(NULL, &value, "EventSetWait");
    for (clock_gettime(CLOCK_MONOTONIC, &began); code == ABSENT;) {
        const Line *event = next_event(set->told);
        if (event) {
            u64 n[5];
            set->told = strtoull(event->key + 6, NULL, 10);
            value = event->value;
            for (int i = 0; i < 5; i++)
                if (!whole(&value, &n[i])) n[i] = -1;
            if (n[0] >= GPUS || !(set->types[n[0]] & n[1])) continue;
            *out = (Event){device(n[0], -1), n[1], n[2], n[3], n[4]};
            return end(SUCCESS);
        }
        clock_gettime(CLOCK_MONOTONIC, &now);
        if ((now.tv_sec - began.tv_sec) * 1000 + (now.tv_nsec - began.tv_nsec) / 1000000 >= milliseconds)
            code = TIMEOUT;
        else wait_a_little();
    }
    return end_allowed(code);
}

/* What fakenvml.c needs of POSIX and MinGW lacks. */

#include <fcntl.h>
#include <io.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define O_CLOEXEC O_BINARY
#define tell told /* <io.h> has another function of this name */

static inline char *strsep(char **rest, const char *ends) {
    char *begin = *rest, *end = begin ? begin + strcspn(begin, ends) : NULL;
    *rest = end && *end ? end + 1 : NULL;
    if (end) *end = 0;
    return begin;
}

static inline int dprintf(int file, const char *format, ...) {
    char text[512];
    va_list values;
    va_start(values, format);
    int length = vsnprintf(text, sizeof text, format, values);
    va_end(values);
    return write(file, text, length);
}

static inline int pread(int file, void *data, size_t size, int64_t begin) {
    return lseek(file, begin, SEEK_SET) < 0 ? -1 : read(file, data, size);
}

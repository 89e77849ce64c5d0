/* A libnvidia-ml.so.1 that answers from a script, so that the real pynvml can be tested without
 * a GPU. The environment variable NVML_STUB names a file of lines "key=value":
 *
 *   count=2                                  cards
 *   gpu0.name=Tesla T4                       also .uuid .total .free .used .reserved .cc=7.5
 *   gpu0.compute=1234:1048576,99:?           processes as pid:bytes; "?" is "not available"
 *   gpu0.graphics=...                        the same for those that draw
 *   gpu0.mig=1  gpu0.places=7                MIG mode, and places for slices
 *   gpu0.mig1.name=...                       the slice at place 1, as a card; also .gi .ci
 *   error.nvmlInitWithFlags=9                makes a function fail everywhere
 *   gpu1.error.nvmlDeviceGetName=15          makes it fail for one card or slice
 *   log=/some/file                           gets a line for every init and shutdown
 *
 * A function whose error is 13 behaves as if an older driver did not have it.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SUCCESS = 0,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
    ARGUMENT_VERSION_MISMATCH = 25
};

typedef struct {
    char key[64]; /* "gpu0" or "gpu0.mig1" */
    int index, place;
} Device;

typedef struct {
    unsigned long long total, free, used;
} Memory;

typedef struct {
    unsigned int version;
    unsigned long long total, reserved, free, used;
} MemoryV2;

typedef struct {
    unsigned int pid;
    unsigned long long used;
    unsigned int gi, ci;
} Process;

static char *lines[512];
static int line_count = -1;
static Device cards[16], slices[16][16];

static void load(void)
{
    char buffer[4096];
    const char *path = getenv("NVML_STUB");
    FILE *file = path ? fopen(path, "r") : NULL;
    line_count = 0;
    while (file && line_count < 512 && fgets(buffer, sizeof buffer, file)) {
        buffer[strcspn(buffer, "\r\n")] = 0;
        lines[line_count++] = strdup(buffer);
    }
    if (file)
        fclose(file);
}

static const char *get(const char *format, ...)
{
    char key[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(key, sizeof key, format, arguments);
    va_end(arguments);
    if (line_count < 0)
        load();
    for (int i = 0; i < line_count; i++)
        if (!strncmp(lines[i], key, strlen(key)) && lines[i][strlen(key)] == '=')
            return lines[i] + strlen(key) + 1;
    return NULL;
}

static unsigned long long number(const char *text)
{
    return text ? strtoull(text, NULL, 10) : 0;
}

static int failure(const Device *device, const char *function)
{
    const char *code = get("error.%s", function);
    if (!code && device)
        code = get("%s.error.%s", device->key, function);
    return (int)number(code);
}

#define FAIL_IF_SCRIPTED(device)                   \
    do {                                           \
        int code_ = failure((device), __func__);   \
        if (code_)                                 \
            return code_;                          \
    } while (0)

static void note(const char *event)
{
    const char *path = get("log");
    FILE *file = path ? fopen(path, "a") : NULL;
    if (file) {
        fprintf(file, "%s\n", event);
        fclose(file);
    }
}

int nvmlInitWithFlags(unsigned int flags)
{
    (void)flags;
    FAIL_IF_SCRIPTED(NULL);
    note("init");
    return SUCCESS;
}

int nvmlShutdown(void)
{
    note("shutdown");
    FAIL_IF_SCRIPTED(NULL);
    return SUCCESS;
}

const char *nvmlErrorString(int code)
{
    (void)code;
    return "scripted error";
}

int nvmlDeviceGetCount_v2(unsigned int *count)
{
    FAIL_IF_SCRIPTED(NULL);
    *count = (unsigned int)number(get("count"));
    return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned int index, Device **device)
{
    if (index >= number(get("count")))
        return INVALID_ARGUMENT;
    *device = &cards[index];
    snprintf((*device)->key, sizeof (*device)->key, "gpu%u", index);
    (*device)->index = (int)index;
    (*device)->place = -1;
    FAIL_IF_SCRIPTED(*device);
    return SUCCESS;
}

static int text(Device *device, const char *field, char *buffer, unsigned int length)
{
    const char *value = get("%s.%s", device->key, field);
    if (!value)
        return NOT_SUPPORTED;
    if (strlen(value) >= length)
        return INSUFFICIENT_SIZE;
    strcpy(buffer, value);
    return SUCCESS;
}

int nvmlDeviceGetName(Device *device, char *buffer, unsigned int length)
{
    FAIL_IF_SCRIPTED(device);
    return text(device, "name", buffer, length);
}

int nvmlDeviceGetUUID(Device *device, char *buffer, unsigned int length)
{
    FAIL_IF_SCRIPTED(device);
    return text(device, "uuid", buffer, length);
}

int nvmlDeviceGetCudaComputeCapability(Device *device, int *major, int *minor)
{
    const char *value = get("%s.cc", device->key);
    FAIL_IF_SCRIPTED(device);
    if (!value || sscanf(value, "%d.%d", major, minor) != 2)
        return NOT_SUPPORTED;
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo(Device *device, Memory *memory)
{
    FAIL_IF_SCRIPTED(device);
    memory->total = number(get("%s.total", device->key));
    memory->free = number(get("%s.free", device->key));
    /* The first version counts what the driver reserves as used. */
    memory->used = memory->total - memory->free;
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo_v2(Device *device, MemoryV2 *memory)
{
    FAIL_IF_SCRIPTED(device);
    if (memory->version != (sizeof(MemoryV2) | 2u << 24))
        return ARGUMENT_VERSION_MISMATCH;
    memory->total = number(get("%s.total", device->key));
    memory->reserved = number(get("%s.reserved", device->key));
    memory->free = number(get("%s.free", device->key));
    memory->used = number(get("%s.used", device->key));
    return SUCCESS;
}

static int processes(Device *device, const char *kind, unsigned int *count, Process *list)
{
    const char *value = get("%s.%s", device->key, kind);
    unsigned int room = *count, found = 0;
    for (; value && *value; found++) {
        unsigned int pid = (unsigned int)number(value);
        const char *size = strchr(value, ':');
        if (list && found < room) {
            list[found].pid = pid;
            list[found].used = size && size[1] == '?' ? ~0ull : number(size ? size + 1 : NULL);
            const char *at = size ? strchr(size, '@') : NULL; /* "pid:bytes@instance" */
            const char *end = strchr(value, ',');
            list[found].gi = at && (!end || at < end) ? (unsigned int)number(at + 1) : ~0u;
            list[found].ci = ~0u;
        }
        value = strchr(value, ',');
        value = value ? value + 1 : NULL;
    }
    *count = found;
    return found > room ? INSUFFICIENT_SIZE : SUCCESS;
}

#define PROCESS_LIST(name, kind)                                        \
    int name(Device *device, unsigned int *count, Process *list)        \
    {                                                                   \
        FAIL_IF_SCRIPTED(device);                                       \
        return processes(device, kind, count, list);                    \
    }

PROCESS_LIST(nvmlDeviceGetComputeRunningProcesses_v2, "compute")
PROCESS_LIST(nvmlDeviceGetComputeRunningProcesses_v3, "compute")
PROCESS_LIST(nvmlDeviceGetGraphicsRunningProcesses_v2, "graphics")
PROCESS_LIST(nvmlDeviceGetGraphicsRunningProcesses_v3, "graphics")

int nvmlDeviceGetMigMode(Device *device, unsigned int *current, unsigned int *pending)
{
    const char *value = get("%s.mig", device->key);
    FAIL_IF_SCRIPTED(device);
    if (!value)
        return NOT_SUPPORTED;
    *current = *pending = (unsigned int)number(value);
    return SUCCESS;
}

int nvmlDeviceGetMaxMigDeviceCount(Device *device, unsigned int *count)
{
    FAIL_IF_SCRIPTED(device);
    *count = (unsigned int)number(get("%s.places", device->key));
    return SUCCESS;
}

int nvmlDeviceGetMigDeviceHandleByIndex(Device *card, unsigned int place, Device **device)
{
    FAIL_IF_SCRIPTED(card);
    if (place >= 16 || !get("%s.mig%u.name", card->key, place))
        return NOT_FOUND;
    *device = &slices[card->index][place];
    snprintf((*device)->key, sizeof (*device)->key, "gpu%d.mig%u", card->index, place);
    (*device)->index = card->index;
    (*device)->place = (int)place;
    return SUCCESS;
}

int nvmlDeviceGetGpuInstanceId(Device *device, unsigned int *id)
{
    FAIL_IF_SCRIPTED(device);
    *id = (unsigned int)number(get("%s.gi", device->key));
    return SUCCESS;
}

int nvmlDeviceGetComputeInstanceId(Device *device, unsigned int *id)
{
    FAIL_IF_SCRIPTED(device);
    *id = (unsigned int)number(get("%s.ci", device->key));
    return SUCCESS;
}

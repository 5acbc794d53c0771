/* NVML's library with nothing behind it: answers from the text file that FAKE_NVML names, read at nvmlInit.
 *
 *     driver 580.95.05
 *     cuda 13000
 *     gpu GPU-n1-0 0000:1b:00.0 143771 NVIDIA H200      (UUID, PCI address, MiB, name)
 *
 * Signatures and codes are those of nvml.h. Calls that a board may refuse answer "Not Supported".
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, INVALID = 2, NOT_SUPPORTED = 3, DRIVER_NOT_LOADED = 9, MOST = 64 };
typedef struct { char uuid[80], name[96]; unsigned domain, bus, device, mib; } gpu;
static gpu gpus[MOST];
static unsigned count;
static int cuda;
static char driver[80];

const char *nvmlErrorString(int code) {
    return code == SUCCESS ? "Success" : code == INVALID ? "Invalid Argument" : code == NOT_SUPPORTED ? "Not Supported"
         : code == DRIVER_NOT_LOADED ? "Driver Not Loaded" : "Unknown Error";
}
int nvmlInit_v2(void) {
    char line[256];
    const char *path = getenv("FAKE_NVML");
    FILE *file = path ? fopen(path, "r") : NULL;
    if (!file) return DRIVER_NOT_LOADED;
    count = 0;
    while (fgets(line, sizeof line, file)) {
        gpu *g = &gpus[count];
        sscanf(line, "driver %79s", driver);
        sscanf(line, "cuda %d", &cuda);
        if (count < MOST && sscanf(line, "gpu %79s %x:%x:%x.0 %u %95[^\n]", g->uuid, &g->domain, &g->bus, &g->device, &g->mib, g->name) == 6)
            count++;
    }
    fclose(file);
    return SUCCESS;
}
int nvmlShutdown(void) { return SUCCESS; }
static int text(char *to, unsigned size, const char *from) { snprintf(to, size, "%s", from); return SUCCESS; }
static int number(unsigned *to, unsigned value) { *to = value; return SUCCESS; }
int nvmlSystemGetDriverVersion(char *to, unsigned size) { return text(to, size, driver); }
int nvmlSystemGetCudaDriverVersion_v2(int *to) { *to = cuda; return SUCCESS; }
int nvmlDeviceGetCount_v2(unsigned *to) { return number(to, count); }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, gpu **to) { *to = &gpus[i]; return i < count ? SUCCESS : INVALID; }
int nvmlDeviceGetName(gpu *g, char *to, unsigned size) { return text(to, size, g->name); }
int nvmlDeviceGetUUID(gpu *g, char *to, unsigned size) { return text(to, size, g->uuid); }
int nvmlDeviceGetVbiosVersion(gpu *g, char *to, unsigned size) { return text(to, size, "96.00.A5.00.1A"); }
int nvmlDeviceGetSerial(gpu *g, char *to, unsigned size) { return NOT_SUPPORTED; }
struct pci { char old[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; };
int nvmlDeviceGetPciInfo_v3(gpu *g, struct pci *to) {
    to->domain = g->domain; to->bus = g->bus; to->device = g->device;
    return SUCCESS;
}
struct memory { unsigned long long total, free, used; };
int nvmlDeviceGetMemoryInfo(gpu *g, struct memory *to) { to->total = to->free = (unsigned long long)g->mib << 20; to->used = 0; return SUCCESS; }
int nvmlDeviceGetEccMode(gpu *g, unsigned *now, unsigned *pending) { *now = *pending = 1; return SUCCESS; }
int nvmlDeviceGetMigMode(gpu *g, unsigned *now, unsigned *pending) { *now = *pending = 0; return SUCCESS; }
int nvmlDeviceGetTotalEccErrors(gpu *g, int kind, int counter, unsigned long long *to) { *to = 0; return SUCCESS; }
int nvmlDeviceGetRemappedRows(gpu *g, unsigned *a, unsigned *b, unsigned *c, unsigned *d) { *a = *b = *c = *d = 0; return SUCCESS; }
int nvmlDeviceGetClockInfo(gpu *g, int which, unsigned *to) { return number(to, which == 2 ? 3201 : 345); }
int nvmlDeviceGetMaxClockInfo(gpu *g, int which, unsigned *to) { return number(to, which == 2 ? 3201 : 1980); }
int nvmlDeviceGetCurrentClocksThrottleReasons(gpu *g, unsigned long long *to) { *to = 1; return SUCCESS; }
int nvmlDeviceGetTemperature(gpu *g, int which, unsigned *to) { return number(to, 31); }
int nvmlDeviceGetEnforcedPowerLimit(gpu *g, unsigned *to) { return number(to, 700000); }
int nvmlDeviceGetPowerManagementDefaultLimit(gpu *g, unsigned *to) { return number(to, 700000); }
int nvmlDeviceGetCurrPcieLinkGeneration(gpu *g, unsigned *to) { return number(to, 5); }
int nvmlDeviceGetMaxPcieLinkGeneration(gpu *g, unsigned *to) { return number(to, 5); }
int nvmlDeviceGetCurrPcieLinkWidth(gpu *g, unsigned *to) { return number(to, 16); }
int nvmlDeviceGetMaxPcieLinkWidth(gpu *g, unsigned *to) { return number(to, 16); }
int nvmlDeviceGetPcieReplayCounter(gpu *g, unsigned *to) { return number(to, 0); }
int nvmlDeviceGetNvLinkState(gpu *g, unsigned link, unsigned *to) { *to = 1; return link < 18 ? SUCCESS : INVALID; }
int nvmlDeviceGetGpuFabricInfo(gpu *g, void *to) { return NOT_SUPPORTED; }
int nvmlDeviceGetPersistenceMode(gpu *g, unsigned *to) { return number(to, 1); }
int nvmlDeviceGetComputeMode(gpu *g, unsigned *to) { return number(to, 0); }
int nvmlDeviceGetComputeRunningProcesses_v3(gpu *g, unsigned *to, void *list) { return number(to, 0); }

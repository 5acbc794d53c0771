/* Shifts the wall clock of the programs that it is preloaded into, by the seconds in /etc/lab-clock ("+600s").
 *
 * The monotonic clock keeps running true: programs that sleep until a moment of it wake up in time, which they do
 * not under libfaketime (Python's time.sleep). Needs no headers, so that a compiler without a C library's
 * development files can build it: tcc -shared -nostdlib.
 */
typedef struct { long s, ns; } moment;
extern void *dlsym(void *, const char *);
extern char *getenv(const char *);
extern int open(const char *, int, ...);
extern long read(int, void *, unsigned long);
extern int close(int);
static long shift;
static int known;
static void learn(void) {
    char text[32]; int file, n, i; long value = 0;
    if (known) return;
    file = open("/etc/lab-clock", 0);
    if (file >= 0) {
        n = read(file, text, 31);
        close(file);
        for (i = 1; i < n && text[i] >= '0' && text[i] <= '9'; i++) value = value * 10 + text[i] - '0';
        shift = n > 0 && text[0] == '-' ? -value : value;
    }
    known = 1;
}
#define NEXT(name) ((int (*)())dlsym((void *)-1L, name))
int clock_gettime(int clock, moment *out) {
    static int (*next)(); int done;
    if (!next) next = NEXT("clock_gettime");
    learn();
    done = next(clock, out);
    if (!done && (clock == 0 || clock == 5)) out->s += shift;
    return done;
}
int gettimeofday(moment *out, void *zone) {
    static int (*next)(); int done;
    if (!next) next = NEXT("gettimeofday");
    learn();
    done = next(out, zone);
    if (!done && out) out->s += shift;
    return done;
}
long time(long *out) {
    moment now;
    clock_gettime(0, &now);
    if (out) *out = now.s;
    return now.s;
}
/* Deadlines: those of the wall clock are counted from 1970, those of the monotonic clock from the boot. */
static moment *true_deadline(const moment *given, moment *room) {
    if (!given) return 0;
    learn();
    *room = *given;
    if (given->s > 1000000000L) room->s -= shift;
    return room;
}
int pthread_cond_timedwait(void *cond, void *mutex, const moment *until) {
    static int (*next)(); moment room;
    if (!next) next = NEXT("pthread_cond_timedwait");
    return next(cond, mutex, true_deadline(until, &room));
}
int sem_timedwait(void *sem, const moment *until) {
    static int (*next)(); moment room;
    if (!next) next = NEXT("sem_timedwait");
    return next(sem, true_deadline(until, &room));
}
int pthread_mutex_timedlock(void *mutex, const moment *until) {
    static int (*next)(); moment room;
    if (!next) next = NEXT("pthread_mutex_timedlock");
    return next(mutex, true_deadline(until, &room));
}
int clock_nanosleep(int clock, int flags, const moment *until, moment *left) {
    static int (*next)(); moment room;
    if (!next) next = NEXT("clock_nanosleep");
    return next(clock, flags, flags & 1 ? true_deadline(until, &room) : until, left);
}

/* Called by the last statement of main: all assertions have passed. */
#include <string.h>
#include <unistd.h>

void evalrun_done(const char *nonce) {
  if (write(3, nonce, strlen(nonce)) < 0) _exit(3);
}

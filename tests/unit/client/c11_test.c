/* Goal    cco.h is C11, and a C program links against libcco_client.so alone.
 * Method  this file is compiled as strict C11, linked against the shared library, and run. */
#include <stdio.h>
#include <string.h>

#include "cco/cco.h"

int main(void) {
  cco_client* client = NULL;
  const cco_client_options options = {sizeof options, 100, "/tmp/cco-no-such-directory/memd.sock"};
  if (cco_version() != CCO_VERSION_MAJOR * 10000 + CCO_VERSION_MINOR * 100 + CCO_VERSION_PATCH)
    return 1;
  if (cco_client_create(&options, &client) != CCO_UNAVAILABLE || client != NULL) return 2;
  if (strstr(cco_error_message(), "Is cco-memd running") == NULL) return 3;
  cco_client_destroy(client);
  return 0;
}

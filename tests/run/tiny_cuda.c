/* The tiny plugin, which says that it runs on CUDA; it touches no card. */
#define TINY_ENTRY tiny_api

#include "../../fixtures/broken/plugins/tiny_plugin.c"

const pj_api *GetPjrtApi(void);

static pj_error *on_cuda(pj_text_of_args *args) {
  args->text = "cuda";
  args->text_size = strlen(args->text);
  return NULL;
}

const pj_api *GetPjrtApi(void) {
  static pj_api api;
  api = *tiny_api();
  api.PJRT_Client_PlatformName = on_cuda;
  return &api;
}

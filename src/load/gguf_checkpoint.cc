#include <utility>

#include "load/gguf_config.h"
#include "load/gguf_file.h"
#include "load/mapped_checkpoint.h"
#include "load/text_side.h"

namespace tandem {

Result<CheckpointContents> ReadGgufCheckpoint(const std::string& path) {
  TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<GgufFile> opened, GgufFile::Open(path, RefuseMixtures));
  const std::shared_ptr<const GgufFile> file = std::move(opened);

  CheckpointContents contents;
  TANDEM_ASSIGN_OR_RETURN(contents.config, ReadGgufConfig(*file));
  TANDEM_ASSIGN_OR_RETURN(contents.text_side, ReadGgufTextSide(*file, path));

  for (const GgufTensor& stored : file->tensors()) {
    if (stored.name == "rope_freqs.weight") continue;  // part of the configuration
    MappedTensor tensor;
    tensor.info.name = HuggingFaceTensorName(stored.name);
    tensor.info.stored_type = std::string(stored.format.name);
    tensor.info.cols = stored.dims[0];
    tensor.info.rows = stored.dims[1] * stored.dims[2] * stored.dims[3];
    tensor.info.stored_bytes = stored.num_bytes;
    tensor.type = stored.format.type;
    tensor.data = stored.data;
    tensor.num_permuted_heads = NumPermutedHeads(contents.config, tensor.info.name);
    // A tensor that is not of this model (a layer beyond the last) may have any number of rows.
    const int64_t permuted_rows = tensor.info.rows == 1 ? tensor.info.cols : tensor.info.rows;
    if (tensor.num_permuted_heads > 0 && permuted_rows % (2 * tensor.num_permuted_heads) != 0)
      tensor.num_permuted_heads = 0;
    contents.tensors.push_back(std::move(tensor));
  }
  contents.files = file;
  return contents;
}

}  // namespace tandem

#include "core/context_index.hpp"

#include <algorithm>
#include <array>

#include "core/require.hpp"

namespace ringline {

namespace {

constexpr size_t kBatch = 256;  // places entered at once

}  // namespace

ContextIndex::ContextIndex(int32_t tokens, int32_t documents)
    : capacity_(tokens), max_documents_(static_cast<size_t>(std::max(documents, 0))) {
  require(tokens >= 2 && tokens <= (1 << 28), "an index of ", tokens, " tokens; 2 to 2^28 are possible");
  require(documents >= 1 && documents <= tokens, "an index of ", documents, " documents");
  text_ = Buffer<int32_t>(static_cast<size_t>(tokens));
  places_ = Buffer<int32_t>(static_cast<size_t>(tokens));
  starts_.reserve(max_documents_);
  marks_.reserve(max_documents_);
}

void ContextIndex::begin(int32_t mark) {
  if (starts_.size() == max_documents_) drop(static_cast<int32_t>(max_documents_ / 8) + 1);
  make_room(1);
  starts_.push_back(size_);
  marks_.push_back(mark);
  text_[size_++] = kSeparator;
}

void ContextIndex::extend(std::span<const int32_t> tokens) {
  require(!starts_.empty(), "no document has been begun");
  for (int32_t token : tokens) require(token >= 0, "token ", token, " is negative");
  const auto longest = static_cast<size_t>(capacity_ - 1);
  if (tokens.size() > longest) tokens = tokens.last(longest);
  make_room(static_cast<int32_t>(tokens.size()));
  const int32_t first = size_;
  std::ranges::copy(tokens, text_.data() + size_);
  size_ += static_cast<int32_t>(tokens.size());
  enter(first);
}

void ContextIndex::fill(std::span<const int32_t> tokens, std::span<const int32_t> lengths) {
  check_fits(tokens, lengths);
  for (int32_t length : lengths) {
    begin();
    for (int32_t token : tokens.first(static_cast<size_t>(length))) {
      if (text_[size_ - 1] != kSeparator) places_[n_places_++] = size_;
      text_[size_++] = token;
    }
    tokens = tokens.subspan(static_cast<size_t>(length));
  }
  std::sort(places_.data(), places_.data() + n_places_,
            [this](int32_t a, int32_t b) { return before(a, b); });
}

void ContextIndex::check_fits(std::span<const int32_t> tokens, std::span<const int32_t> lengths) const {
  require(starts_.empty(), "the index is not empty");
  require(lengths.size() <= max_documents_, lengths.size(), " documents; there is room for ", max_documents_);
  require(tokens.size() + lengths.size() <= static_cast<size_t>(capacity_), tokens.size(), " tokens in ",
          lengths.size(), " documents; there is room for ", capacity_, " of both");
  int64_t total = 0;
  for (int32_t length : lengths) {
    require(length >= 0, "a document of ", length, " tokens");
    total += length;
  }
  require(total == static_cast<int64_t>(tokens.size()), tokens.size(), " tokens in documents of ", total);
  for (int32_t token : tokens) require(token >= 0, "token ", token, " is negative");
}

std::span<const int32_t> ContextIndex::document(int32_t i) const {
  check(i);
  const int32_t first = starts_[i] + 1;
  const int32_t last = i + 1 < documents() ? starts_[i + 1] : size_;
  return {text_.data() + first, static_cast<size_t>(last - first)};
}

int32_t ContextIndex::mark(int32_t i) const {
  check(i);
  return marks_[i];
}

void ContextIndex::check(int32_t document) const {
  require(document >= 0 && document < documents(), "document ", document, " of ", documents());
}

// Whole documents go, an eighth of the text at least, so that moving the rest is rare.
void ContextIndex::make_room(int32_t tokens) {
  if (size_ + tokens <= capacity_) return;
  const int32_t needed = std::max(size_ + tokens - capacity_, capacity_ / 8);
  int32_t n = 0;
  while (n + 1 < documents() && starts_[n] < needed) ++n;
  if (n > 0) drop(n);
  if (size_ + tokens <= capacity_) return;
  // What is left is the newest document alone: its older part is forgotten.
  const int32_t kept = std::min({size_ - 1, capacity_ / 2, capacity_ - 1 - tokens});
  std::copy(text_.data() + size_ - kept, text_.data() + size_, text_.data() + 1);
  size_ = 1 + kept;
  n_places_ = 0;
  enter(1);
}

void ContextIndex::drop(int32_t n) {
  const int32_t shift = n < documents() ? starts_[n] : size_;
  std::copy(text_.data() + shift, text_.data() + size_, text_.data());
  size_ -= shift;
  int32_t kept = 0;
  for (int32_t i = 0; i < n_places_; ++i) {
    if (places_[i] >= shift) places_[kept++] = places_[i] - shift;
  }
  n_places_ = kept;
  starts_.erase(starts_.begin(), starts_.begin() + n);
  marks_.erase(marks_.begin(), marks_.begin() + n);
  for (int32_t& start : starts_) start -= shift;
  dropped_ += n;
}

void ContextIndex::enter(int32_t first) {
  std::array<int32_t, kBatch> batch;
  size_t n = 0;
  for (int32_t place = first; place < size_; ++place) {
    if (text_[place - 1] != kSeparator) batch[n++] = place;
    if (n == kBatch || (place + 1 == size_ && n > 0)) {
      std::sort(batch.begin(), batch.begin() + n, [this](int32_t a, int32_t b) { return before(a, b); });
      merge({batch.data(), n});
      n = 0;
    }
  }
}

// From the back, so that every old place is moved once and to where it stays.
void ContextIndex::merge(std::span<int32_t> sorted) {
  int32_t old_end = n_places_;
  auto left = static_cast<int32_t>(sorted.size());
  n_places_ += left;
  while (left > 0) {
    const int32_t place = sorted[left - 1];
    int32_t* at = std::upper_bound(places_.data(), places_.data() + old_end, place,
                                   [this](int32_t a, int32_t b) { return before(a, b); });
    std::copy_backward(at, places_.data() + old_end, places_.data() + old_end + left);
    old_end = static_cast<int32_t>(at - places_.data());
    places_[old_end + --left] = place;
  }
}

bool ContextIndex::before(int32_t a, int32_t b) const {
  for (int32_t i = 1; i <= kDepth; ++i) {
    const int32_t x = text_[a - i];
    const int32_t y = text_[b - i];
    if (x != y) return x < y;
    if (x == kSeparator) break;
  }
  return a < b;
}

int32_t ContextIndex::shared(int32_t place, std::span<const int32_t> query, int32_t most) const {
  int32_t n = 0;
  while (n < most && text_[place - 1 - n] == query[query.size() - 1 - n]) ++n;
  return n;
}

bool ContextIndex::place_before(int32_t place, std::span<const int32_t> query) const {
  const auto most = static_cast<int32_t>(query.size());
  const int32_t n = shared(place, query, most);
  if (n == kDepth) return true;  // equals stand in the order of the text: behind the latest of them
  const int32_t next = n < most ? query[query.size() - 1 - n] : kSeparator;
  return text_[place - 1 - n] <= next;
}

size_t ContextIndex::find(std::span<const int32_t> query, int32_t shortest,
                          std::span<ContextMatch> found) const {
  query = query.last(std::min<size_t>(query.size(), kDepth));
  for (int32_t token : query) require(token >= 0, "token ", token, " is negative");
  const int32_t* begin = places_.data();
  const int32_t* end = begin + n_places_;
  const int32_t* right = std::partition_point(begin, end, [&](int32_t p) { return place_before(p, query); });
  const int32_t* left = right;
  const auto most = static_cast<int32_t>(query.size());
  int32_t left_length = left > begin ? shared(left[-1], query, most) : 0;
  int32_t right_length = right < end ? shared(*right, query, most) : 0;
  size_t n = 0;
  while (n < found.size() && std::max(left_length, right_length) >= std::max(shortest, 1)) {
    if (left_length >= right_length) {
      --left;
      found[n++] = {*left, left_length, document_of(*left)};
      left_length = left > begin ? shared(left[-1], query, left_length) : 0;
    } else {
      found[n++] = {*right, right_length, document_of(*right)};
      ++right;
      right_length = right < end ? shared(*right, query, right_length) : 0;
    }
  }
  return n;
}

int32_t ContextIndex::document_of(int32_t place) const {
  return static_cast<int32_t>(std::upper_bound(starts_.begin(), starts_.end(), place) - starts_.begin()) - 1;
}

bool ContextIndex::sorted() const {
  return std::is_sorted(places_.data(), places_.data() + n_places_,
                        [this](int32_t a, int32_t b) { return before(a, b); });
}

}  // namespace ringline

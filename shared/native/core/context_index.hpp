// A bounded text with its contexts in sorted order: where did what was said last stand before?
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/buffer.hpp"

namespace ringline {

// The last `length` tokens of the query also stand before `place`, in document `document`.
struct ContextMatch {
  int32_t place;
  int32_t length;
  int32_t document;
};

//   text     ∅ 7 3 9 4 1 8 ∅ 5 3 9 4 2       ∅ begins a document; nothing is compared across it
//   places   every p whose context is not empty, sorted by text[p-1], text[p-2] …; text[p] is what followed
//
// This is the suffix array of the reversed text. Contexts that agree in their last k tokens are neighbours,
// so the longest matches of a query stand around the place where it would be inserted, and all of them are
// found with one binary search. Memory is taken at construction; when it is full the oldest documents go.
class ContextIndex {
 public:
  static constexpr int32_t kDepth = 32;  // tokens compared at most

  // Room for `tokens` tokens in at most `documents` documents (one of each may be lost to separators).
  ContextIndex(int32_t tokens, int32_t documents);

  // Begin a document. `mark` is a number of the caller's that goes with it.
  void begin(int32_t mark = 0);
  // Append to the newest document. Old documents make room; of one that is too long itself the older part is
  // forgotten. std::invalid_argument when there is no document or a token is negative.
  void extend(std::span<const int32_t> tokens);
  // Documents one behind the other, `lengths` of them, into an empty index: sorted once, so that a large text
  // is there soon. std::invalid_argument when they do not fit or the index is not empty.
  void fill(std::span<const int32_t> tokens, std::span<const int32_t> lengths);

  // The longest matches of the end of `query`, longest first, among equals the latest of each side of the
  // insertion point; returns how many were written to `found`. Those shorter than `shortest` are left out.
  // std::invalid_argument for a negative token.
  size_t find(std::span<const int32_t> query, int32_t shortest, std::span<ContextMatch> found) const;

  int32_t token(int32_t place) const { return text_[place]; }
  // One past the last token of the text: a match that has been followed so far has no continuation.
  int32_t end() const { return size_; }
  int32_t documents() const { return static_cast<int32_t>(starts_.size()); }
  // Tokens and mark of document i, 0 being the oldest.
  std::span<const int32_t> document(int32_t i) const;
  int32_t mark(int32_t i) const;
  // Documents dropped so far: document i is the (dropped() + i)-th that was begun.
  int64_t dropped() const { return dropped_; }
  bool sorted() const;  // for tests: the order that everything rests on

 private:
  static constexpr int32_t kSeparator = -1;

  bool before(int32_t a, int32_t b) const;
  int32_t shared(int32_t place, std::span<const int32_t> query, int32_t most) const;
  bool place_before(int32_t place, std::span<const int32_t> query) const;
  void check_fits(std::span<const int32_t> tokens, std::span<const int32_t> lengths) const;
  void make_room(int32_t tokens);
  void drop(int32_t documents);
  void enter(int32_t first);
  void merge(std::span<int32_t> sorted);
  int32_t document_of(int32_t place) const;
  void check(int32_t document) const;

  int32_t capacity_;
  size_t max_documents_;
  int32_t size_ = 0;
  int32_t n_places_ = 0;
  int64_t dropped_ = 0;
  Buffer<int32_t> text_;
  Buffer<int32_t> places_;
  std::vector<int32_t> starts_;  // of the documents' separators, never grown beyond what is reserved
  std::vector<int32_t> marks_;
};

}  // namespace ringline

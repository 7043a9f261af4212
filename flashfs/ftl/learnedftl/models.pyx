"""LearnedFTL's models (S. Wang et al., LearnedFTL: A Learning-based Page-level FTL for Reducing Double Reads in
Flash-based SSDs, HPCA 2024): beside each directory entry a few lines from LPAs to VPPNs, changed in place, and a bitmap
filter of the LPAs for which they are exact.

A model covers up to 512 LPAs, as in the paper. A translation page with more entries has several, one with fewer has one
model of as many. Its eight pieces are lines over equal numbers of mapped LPAs, by least squares. A piece is three
fields of two bytes: its first LPA, its slope in 1/4096, and its VPPN there, relative to the model's base. All
arithmetic is in integers, so the same pages give the same model on any machine.

A bit is set only where the model gives exactly the page of the LPA; every change of the LPA's page clears it.

``save`` packs models and filters as a controller would, 116 bytes for 512 LPAs. They are valid only for the moment of
the save, so they are loaded only from a checkpoint that no write followed.
"""
from libc.stdint cimport int16_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy, memset

from flashfs.engine.blocks.pool cimport NONE
from nandimg._vppn cimport ppa_of, vppn_of

cdef extern from *:
    int popcount64 "__builtin_popcountll"(unsigned long long) nogil

cdef enum:
    TRAINED_FROM = 30        # up to so many mapped LPAs of 512 are too few to train a model from
    RUN_LEAST = 2            # fewest pages of a run that may begin a model
    FAR = 1 << 20            # VPPNs: no line of a piece spans so many
    RISE_MOST = 32767
    MODEL_BYTES = 4 + 6 * PIECES  # as a controller packs it, without its filter
    NO_PIECE = 0xFFFF        # in place of the LPA that a piece begins at


cdef inline int64_t rounded(int64_t a, int64_t b) noexcept nogil:
    """a / b to the nearest integer, halves up; ``b`` is positive."""
    cdef int64_t twice = 2 * a + b, by = 2 * b
    cdef int64_t quotient = twice // by    # towards zero
    return quotient - (quotient * by > twice)


cdef inline int64_t height(const Piece* piece, uint32_t x) noexcept nogil:
    """The VPPN that a piece predicts, less the base."""
    return piece.rise + ((<int64_t> piece.slope * (<int64_t> x - piece.off) + ONE // 2) >> 12)


cdef inline int64_t said(const Model* model, uint32_t x) noexcept nogil:
    """The VPPN that a model predicts; -1 if no piece covers that LPA."""
    cdef uint32_t p = model.pieces
    while p and model.piece[p - 1].off > x:
        p -= 1
    return model.base + height(&model.piece[p - 1], x) if p else -1


cdef inline bint has_bit(const Model* model, uint32_t x) noexcept nogil:
    return model.exact[x >> 6] >> (x & 63) & 1


cdef bint all_zero(const uint8_t* at, uint64_t n) noexcept nogil:
    return n == 0 or (at[0] == 0 and memcmp(at, at + 1, n - 1) == 0)


cdef class Models:
    """The models of ``pages`` translation pages of ``per_page`` entries, on a chip of so many ``dies`` and
    ``pages_per_block``; empty at first."""

    def __cinit__(self, uint32_t pages, uint32_t per_page, uint32_t dies, uint32_t pages_per_block):
        self.pages = pages
        self.per_page = per_page
        self.span = min(per_page, <uint32_t> SPAN)
        self.models_a_page = (per_page + self.span - 1) // self.span
        self.least = TRAINED_FROM * self.span // SPAN + 1
        self.dies = dies
        self.pages_per_block = pages_per_block
        self.models = <Model*> calloc(<uint64_t> pages * self.models_a_page, sizeof(Model))
        if self.models == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.models)

    cdef inline Model* of(self, uint32_t lpa, uint32_t* x) noexcept nogil:
        """The model of an LPA; sets ``x`` to its offset in that model."""
        cdef uint32_t page = lpa // self.per_page, offset = lpa - page * self.per_page, which = offset // self.span
        x[0] = offset - which * self.span
        return self.models + <uint64_t> page * self.models_a_page + which

    # --- the filter

    cdef bint predict(self, uint32_t lpa, uint32_t* ppa) noexcept nogil:
        """Whether the model knows the LPA's page; sets its PPA."""
        cdef uint32_t x = 0
        cdef Model* model = self.of(lpa, &x)
        if not has_bit(model, x):
            return False
        ppa[0] = ppa_of(<uint32_t> said(model, x), self.dies, self.pages_per_block)
        return True

    cdef int set_bit(self, Model* model, uint32_t x) noexcept nogil:
        if not has_bit(model, x):
            model.exact[x >> 6] |= <uint64_t> 1 << (x & 63)
            model.exact_n += 1
            self.exact_n += 1
        return 0

    cdef int forget(self, uint32_t lpa) noexcept nogil:
        """The LPA's page changes: clear its bit."""
        cdef uint32_t x = 0
        cdef Model* model = self.of(lpa, &x)
        if has_bit(model, x):
            model.exact[x >> 6] &= ~(<uint64_t> 1 << (x & 63))
            model.exact_n -= 1
            self.exact_n -= 1
        return 0

    cdef int forget_page(self, uint32_t page) noexcept nogil:
        """Drop the models of that translation page."""
        cdef uint32_t i
        cdef Model* model = self.models + <uint64_t> page * self.models_a_page
        for i in range(self.models_a_page):
            self.exact_n -= model[i].exact_n
        memset(model, 0, self.models_a_page * sizeof(Model))
        return 0

    cdef int forget_all(self) noexcept nogil:
        memset(self.models, 0, <uint64_t> self.pages * self.models_a_page * sizeof(Model))
        self.exact_n = 0
        return 0

    cdef int mark(self, uint32_t page, uint64_t* bits) noexcept nogil:
        """Set a bit in ``bits`` for each entry of the page that its models know; other bits are unchanged. Every model
        except the last of a page has whole words."""
        cdef uint32_t i, w, words = (self.per_page + 63) // 64, at
        for i in range(self.models_a_page):
            for w in range(<uint32_t> PIECES):
                at = i * PIECES + w
                if at < words:
                    bits[at] |= self.models[<uint64_t> page * self.models_a_page + i].exact[w]
        return 0

    cdef uint64_t known_in(self, uint32_t first, uint32_t end) noexcept nogil:
        """Set bits of the models of translation pages ``first`` to ``end``."""
        cdef uint64_t i, n = 0
        for i in range(<uint64_t> first * self.models_a_page, <uint64_t> end * self.models_a_page):
            n += self.models[i].exact_n
        return n

    cdef bint is_untried(self, uint32_t page) noexcept nogil:
        """Whether no model of that page was ever trained."""
        cdef uint32_t i
        for i in range(self.models_a_page):
            if self.models[<uint64_t> page * self.models_a_page + i].tried:
                return False
        return True

    # --- training: from all entries of a translation page, as they are now

    cdef int train(self, uint32_t page, const uint32_t* ppas, uint32_t n) noexcept nogil:
        """Train the page's models: its LPAs, from the first on, are at ``ppas``; NONE is a hole. A new model replaces
        the old one if it is exact for more of them."""
        cdef uint32_t i, first
        for i in range(self.models_a_page):
            first = i * self.span
            if first < n:
                self.train_one(self.models + <uint64_t> page * self.models_a_page + i, ppas + first,
                               min(self.span, n - first))
        return 0

    cdef int train_one(self, Model* model, const uint32_t* ppas, uint32_t n) noexcept nogil:
        cdef uint32_t i, p, points = 0, exact = 0
        model.tried = 1
        for i in range(n):
            if ppas[i] != NONE:
                self.x[points] = <uint16_t> i
                self.y[points] = vppn_of(ppas[i], self.dies, self.pages_per_block)
                points += 1
        if points < self.least or model.exact_n == points:
            return 0
        self.trained += 1
        memset(&self.draft, 0, sizeof(Model))
        self.draft.tried = 1
        self.draft.pieces = <uint8_t> min(points, <uint32_t> PIECES)
        self.put_base(points, self.draft.pieces)
        for p in range(self.draft.pieces):
            exact += self.fit(p * points // self.draft.pieces, (p + 1) * points // self.draft.pieces,
                              &self.draft.piece[p])
        if exact <= model.exact_n:
            return 0
        self.taken += 1
        self.exact_n -= model.exact_n
        model[0] = self.draft
        for i in range(points):
            if said(model, self.x[i]) == self.y[i]:
                self.set_bit(model, self.x[i])
        return 0

    cdef int put_base(self, uint32_t n, uint32_t pieces) noexcept nogil:
        """The median of the pieces' middle VPPNs: a few outliers do not put the other pages out of reach."""
        cdef int64_t[8] middle
        cdef int64_t one
        cdef uint32_t p, k
        for p in range(pieces):
            one = self.y[(2 * p + 1) * n // (2 * pieces)]
            k = p
            while k and middle[k - 1] > one:
                middle[k] = middle[k - 1]
                k -= 1
            middle[k] = one
        self.draft.base = <uint32_t> middle[pieces // 2]
        return 0

    cdef uint32_t fit(self, uint32_t first, uint32_t end, Piece* piece) noexcept nogil:
        """Fit a line to points ``first`` to ``end``; returns for how many it is exact. One outlier spoils a
        least-squares line: if that is not exact for all, lines of slope 1 through three of the points are tried too,
        since pages are written in order."""
        cdef uint32_t best = 0, found, i, at
        cdef int64_t rise
        cdef Piece other
        piece.off = self.x[first]
        piece.slope = piece.rise = 0
        if self.line(first, end, piece):
            best = self.count(first, end, piece)
        for i in range(1, 4 if best < end - first else 1):
            at = first + i * (end - first) // 4
            rise = self.y[at] - (<int64_t> self.x[at] - piece.off) - self.draft.base
            if rise < -RISE_MOST or rise > RISE_MOST:
                continue
            other.off = piece.off
            other.slope = ONE
            other.rise = <int16_t> rise
            found = self.count(first, end, &other)
            if found > best:
                best = found
                piece[0] = other
        return best

    cdef bint line(self, uint32_t first, uint32_t end, Piece* piece) noexcept nogil:
        """Fit by least squares; False if the line exceeds the fields' range."""
        cdef int64_t n = end - first, sx = 0, sy = 0, sxx = 0, sxy = 0, x, y, slope = 0, rise
        cdef uint32_t i
        for i in range(first, end):
            x = <int64_t> self.x[i] - piece.off
            y = self.y[i] - self.y[first]
            if y > FAR or y < -FAR:
                return False
            sx += x
            sy += y
            sxx += x * x
            sxy += x * y
        if n > 1:
            slope = rounded(ONE * (n * sxy - sx * sy), n * sxx - sx * sx)
        rise = rounded(ONE * sy - slope * sx, ONE * n) + self.y[first] - self.draft.base
        if slope < -RISE_MOST or slope > RISE_MOST or rise < -RISE_MOST or rise > RISE_MOST:
            return False
        piece.slope = <int16_t> slope
        piece.rise = <int16_t> rise
        return True

    cdef uint32_t count(self, uint32_t first, uint32_t end, const Piece* piece) noexcept nogil:
        """How many of the points the piece is exact for."""
        cdef uint32_t i, found = 0
        for i in range(first, end):
            found += self.draft.base + height(piece, self.x[i]) == self.y[i]
        return found

    # --- sequential initialisation: from a run that was written together

    cdef int learn_run(self, const uint32_t* lpas, const uint32_t* ppas, uint32_t n) noexcept nogil:
        """Learn from pages that were written together and are mapped. Where LPAs and VPPNs are both consecutive, they
        form a line of slope 1."""
        cdef uint32_t i = 0, run, x = 0, vppn
        while i < n:
            vppn = vppn_of(ppas[i], self.dies, self.pages_per_block)
            self.of(lpas[i], &x)
            run = 1
            while (i + run < n and x + run < self.span and lpas[i + run] == lpas[i] + run
                   and lpas[i + run] % self.per_page
                   and vppn_of(ppas[i + run], self.dies, self.pages_per_block) == vppn + run):
                run += 1
            self.take_run(lpas[i], vppn, run)
            i += run
        return 0

    cdef int take_run(self, uint32_t lpa, uint32_t vppn, uint32_t n) noexcept nogil:
        """``n`` LPAs of one model from ``lpa`` on are at ``vppn``, ``vppn + 1``, ... If there are more of them than the
        model is exact for, their line replaces it (the paper's L_new > L_old)."""
        cdef uint32_t x = 0, i, known = 0
        cdef Model* model = self.of(lpa, &x)
        for i in range(n):
            if said(model, x + i) == <int64_t> vppn + i:
                self.set_bit(model, x + i)
                known += 1
            else:
                self.forget(lpa + i)
        if known == n or n < RUN_LEAST or self.extend(model, x, vppn, n):
            return 0
        if n > model.exact_n:
            self.replace(model, x, vppn, n)
        return 0

    cdef bint extend(self, Model* model, uint32_t x, uint32_t vppn, uint32_t n) noexcept nogil:
        """Add the run as another piece, if it lies beyond all LPAs that the model is exact for."""
        cdef int64_t rise = <int64_t> vppn - model.base
        cdef uint32_t w, p = model.pieces, i, end = x + n
        if p == 0 or p == PIECES or model.piece[p - 1].off >= x or rise < -RISE_MOST or rise > RISE_MOST:
            return False
        for w in range(end >> 6, <uint32_t> PIECES):
            if model.exact[w] >> (end & 63 if w == end >> 6 else 0):
                return False
        model.piece[p].off = <uint16_t> x
        model.piece[p].slope = ONE
        model.piece[p].rise = <int16_t> rise
        model.pieces += 1
        for i in range(n):
            self.set_bit(model, x + i)
        self.extended += 1
        return True

    cdef int replace(self, Model* model, uint32_t x, uint32_t vppn, uint32_t n) noexcept nogil:
        cdef uint32_t i
        cdef uint8_t tried = model.tried
        self.exact_n -= model.exact_n
        memset(model, 0, sizeof(Model))
        model.tried = tried
        model.base = vppn
        model.pieces = 1
        model.piece[0].off = <uint16_t> x
        model.piece[0].slope = ONE
        for i in range(n):
            self.set_bit(model, x + i)
        self.runs += 1
        return 0

    # --- checkpoints

    def save(self):
        """All models and filters, in the order of LPAs: u32 base, then for each of eight pieces u16 first LPA (relative
        to the model's first), i16 slope, i16 rise; then the filter. One that was never trained is all zeros, so that a
        checkpoint of many of those has few pages."""
        cdef uint64_t i, n = <uint64_t> self.pages * self.models_a_page
        cdef uint64_t size = MODEL_BYTES + (self.span + 7) // 8
        out = bytearray(n * size)
        cdef uint8_t[::1] raw = out
        with nogil:
            for i in range(n):
                if self.models[i].pieces:
                    self.pack_one(self.models + i, &raw[i * size])
        return out

    cdef int pack_one(self, const Model* model, uint8_t* out) noexcept nogil:
        cdef uint32_t p
        cdef Piece none
        none.off = NO_PIECE
        none.slope = none.rise = 0
        memcpy(out, &model.base, 4)
        for p in range(<uint32_t> PIECES):
            memcpy(out + 4 + 6 * p, &model.piece[p] if p < model.pieces else &none, sizeof(Piece))
        memcpy(out + MODEL_BYTES, model.exact, (self.span + 7) // 8)
        return 0

    def load(self, saved, uint32_t lpas, uint32_t chip_pages):
        """The inverse, for a device of so many LPAs and a chip of so many pages; ValueError says what is wrong. These
        models do not count as trained, so a read of their page may still train better ones."""
        try:
            self.unpack(saved, lpas, chip_pages)
        except ValueError:
            self.forget_all()
            raise

    cdef unpack(self, saved, uint32_t lpas, uint32_t chip_pages):
        cdef uint64_t i, n = <uint64_t> self.pages * self.models_a_page, first, end
        cdef uint64_t size = MODEL_BYTES + (self.span + 7) // 8
        cdef const uint8_t[::1] raw = memoryview(saved).cast("B")
        self.forget_all()
        if <uint64_t> raw.shape[0] != n * size:
            raise ValueError(f"models section of {raw.shape[0]} bytes: {n * size} are needed")
        for i in range(n):
            if all_zero(&raw[i * size], size):
                continue
            self.unpack_one(self.models + i, &raw[i * size])
            first = i // self.models_a_page * self.per_page + i % self.models_a_page * self.span
            end = min(first + self.span, i // self.models_a_page * self.per_page + self.per_page, <uint64_t> lpas)
            if not self.count_bits(self.models + i, <uint32_t> (max(end, first) - first), chip_pages):
                raise ValueError(f"models section: model {i} knows a page that is not there")

    cdef int unpack_one(self, Model* model, const uint8_t* saved) except -1:
        cdef uint32_t p
        cdef Piece piece
        memcpy(&model.base, saved, 4)
        memcpy(model.exact, saved + MODEL_BYTES, (self.span + 7) // 8)
        for p in range(<uint32_t> PIECES):
            memcpy(&piece, saved + 4 + 6 * p, sizeof(Piece))
            if piece.off == NO_PIECE:
                break
            if piece.off >= self.span or (p and piece.off <= model.piece[p - 1].off):
                raise ValueError(f"models section: a piece that begins at {piece.off}")
            model.piece[p] = piece
            model.pieces += 1
        return 0

    cdef bint count_bits(self, Model* model, uint32_t n, uint32_t chip_pages) noexcept nogil:
        """Add the bits of a loaded model to the counts; False if a bit is beyond its ``n`` LPAs, or predicts a page
        that is not on the chip."""
        cdef uint32_t x
        cdef int64_t vppn
        for x in range(<uint32_t> SPAN):
            if has_bit(model, x):
                vppn = said(model, x) if x < n else -1
                if vppn < 0 or vppn >= chip_pages:
                    return False
                model.exact_n += 1
                self.exact_n += 1
        return True

    # --- for tests and people

    def where(self, uint32_t lpa):
        """The PPA if the model knows it, or None."""
        cdef uint32_t ppa = NONE
        self.require(lpa // self.per_page)
        return ppa if self.predict(lpa, &ppa) else None

    def train_page(self, uint32_t page, const uint32_t[::1] ppas not None):
        """Train the models of a page from the PPAs of its LPAs."""
        self.require(page)
        if ppas.shape[0] == 0 or ppas.shape[0] > self.per_page:
            raise ValueError(f"{ppas.shape[0]} entries: a translation page has {self.per_page}")
        self.train(page, &ppas[0], <uint32_t> ppas.shape[0])

    def write_run(self, const uint32_t[::1] lpas not None, const uint32_t[::1] ppas not None):
        """Report that these LPAs were written together."""
        cdef Py_ssize_t i
        if lpas.shape[0] != ppas.shape[0] or lpas.shape[0] == 0:
            raise ValueError(f"{lpas.shape[0]} LPAs, and {ppas.shape[0]} PPAs")
        for i in range(lpas.shape[0]):
            self.require(lpas[i] // self.per_page)
            self.forget(lpas[i])
        self.learn_run(&lpas[0], &ppas[0], <uint32_t> lpas.shape[0])

    def change(self, uint32_t lpa):
        """Report that the LPA was rewritten, trimmed or moved."""
        self.require(lpa // self.per_page)
        self.forget(lpa)

    def clear(self):
        """Drop all models."""
        self.forget_all()

    def require(self, uint32_t page):
        if page >= self.pages:
            raise ValueError(f"translation page {page}: there are {self.pages}")

    def pages_trained(self):
        """The translation pages that have a model with at least one piece, ascending."""
        cdef uint64_t i, n = <uint64_t> self.pages * self.models_a_page
        cdef uint32_t page, last = NONE
        out = []
        for i in range(n):
            page = <uint32_t> (i // self.models_a_page)
            if self.models[i].pieces and page != last:
                out.append(page)
                last = page
        return out

    def of_page(self, uint32_t page):
        """[{first LPA, base, pieces as (LPA, slope, VPPN at it), LPAs that it is exact for}] of a translation page."""
        cdef uint32_t i, p
        cdef Model* model
        self.require(page)
        out = []
        for i in range(self.models_a_page):
            model = self.models + <uint64_t> page * self.models_a_page + i
            first = page * self.per_page + i * self.span
            pieces = [(first + model.piece[p].off, model.piece[p].slope / ONE,
                       <int64_t> model.base + model.piece[p].rise) for p in range(model.pieces)]
            out.append({"first_lpa": first, "base": model.base, "pieces": pieces, "exact": model.exact_n})
        return out

    def sizes(self):
        """{structure: (bytes packed, bytes allocated)}: 52 a model and a bit an LPA, packed. A model is allocated with
        512 bits and its three counts, whatever its span."""
        cdef uint64_t n = <uint64_t> self.pages * self.models_a_page
        filters = (self.span + 7) // 8
        return {"models": (n * MODEL_BYTES, n * (sizeof(Model) - 8 * PIECES)), "filters": (n * filters, n * 8 * PIECES)}

    def check(self):
        """The counts agree with the bits."""
        cdef uint64_t i, total = 0
        cdef uint32_t w, bits
        problems = []
        for i in range(<uint64_t> self.pages * self.models_a_page):
            bits = 0
            for w in range(<uint32_t> PIECES):
                bits += popcount64(self.models[i].exact[w])
            if bits != self.models[i].exact_n or (bits and not self.models[i].pieces):
                problems.append(f"model {i}: {bits} bits, {self.models[i].exact_n} counted, "
                                f"{self.models[i].pieces} pieces")
            total += bits
        if total != self.exact_n:
            problems.append(f"models: {total} bits, and {self.exact_n} counted")
        return problems

    def forget_counts(self):
        self.trained = self.taken = self.runs = self.extended = 0

// SPDX-License-Identifier: Apache-2.0

package upkeep

import (
	"math/rand/v2"
	"testing"
	"time"
)

func TestBucket(t *testing.T) {
	t.Parallel()
	b, now := Restores(), time.Unix(0, 0)
	for i := range 9 {
		if pause := b.Take(now); pause != 0 {
			t.Errorf("restore %d is followed by a pause of %v", i+1, pause)
		}
	}
	for range 100 {
		if pause := b.Take(now); pause != b.Every {
			t.Errorf("a pause of %v while the bucket is empty", pause)
		}
		now = now.Add(b.Every)
	}
	if pause := b.Take(now.Add(-time.Hour)); pause != b.Every {
		t.Errorf("a pause of %v after the clock went back", pause)
	}
	if pause := b.Take(now.Add(time.Minute)); pause != 0 {
		t.Errorf("a pause of %v with a full bucket", pause)
	}
}

// TestBucketBounds compares random sequences with a bucket's promise: each attempt is immediate
// while a token is left, and there are never more than the burst and the tokens that came since.
func TestBucketBounds(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 0))
		b := Bucket{Burst: 1 + random.IntN(10), Every: time.Duration(1+random.IntN(1000)) * time.Millisecond}
		begun := time.Unix(0, 0)
		now := begun
		for taken := 1; taken < 300; taken++ {
			pause := b.Take(now)
			if most := b.Burst + int(now.Sub(begun)/b.Every); taken > most {
				t.Fatalf("seed %d: %d attempts within %v, of a burst of %d and one each %v", seed, taken, now.Sub(begun), b.Burst, b.Every)
			}
			if pause > b.Every {
				t.Fatalf("seed %d: a pause of %v is longer than %v", seed, pause, b.Every)
			}
			now = now.Add(max(pause, time.Duration(random.Int64N(int64(2*b.Every)))))
		}
	}
}

// TestBucketOfSlowAttempts has attempts no more often than tokens come: none has to wait.
func TestBucketOfSlowAttempts(t *testing.T) {
	t.Parallel()
	b, now := Restores(), time.Unix(0, 0)
	for range 1000 {
		if pause := b.Take(now); pause != 0 {
			t.Fatalf("a pause of %v", pause)
		}
		now = now.Add(b.Every)
	}
}

func TestStreak(t *testing.T) {
	t.Parallel()
	var s Streak
	now := time.Unix(0, 0)
	if !s.Over(now) {
		t.Error("a streak before anything has happened")
	}
	for i := range 5 {
		now = now.Add(calm - 1)
		if n := s.Add(now); n != i+1 {
			t.Errorf("event %d has the number %d", i+1, n)
		}
	}
	if s.Over(s.Ends().Add(-1)) || !s.Over(s.Ends()) || s.Count() != 5 {
		t.Errorf("%+v does not end at %v", s, s.Ends())
	}
	if n := s.Add(s.Ends()); n != 1 {
		t.Errorf("the first event after a calm has the number %d", n)
	}
}

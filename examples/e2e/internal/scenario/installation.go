// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"reflect"
	"strconv"
	"sync"
	"testing"
)

// installation is what is known of the suite's release.
type installation struct {
	change sync.Mutex // is held while a scenario that begins changes it

	mu     sync.Mutex
	known  bool
	values Values
	pods   int // how often its pods were to be made anew
}

// annotations are those of the release's pods.
func (i *installation) annotations() Values {
	i.mu.Lock()
	defer i.mu.Unlock()
	return Values{"meshcni-e2e/pods": strconv.Itoa(i.pods)}
}

// renew has the next installation make all pods anew, even if nothing else changes.
func (i *installation) renew() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.known = false
	i.pods++
}

// is tells whether the release is known to have these values.
func (i *installation) is(values Values) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.known && (len(i.values) == 0 && len(values) == 0 || reflect.DeepEqual(i.values, values))
}

// become notes the release's values.
func (i *installation) become(values Values) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.known, i.values = true, values
}

// forget notes that nobody knows what is installed.
func (i *installation) forget() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.known = false
}

// Changed has the next scenario install the product, whatever is known of it: something else than [Suite.Install] has changed its objects.
func (s *Suite) Changed() { s.installation.forget() }

// BeginWith is [Suite.Begin] with the product installed with values ([Suite.Install]). Another scenario may find it so: what the product is
// to be like, each says at its begin.
func (s *Suite) BeginWith(t *testing.T, values Values) *Scenario {
	t.Helper()
	b := s.BeginAsItIs(t)
	b.Have(values)
	return b
}

// Have has the product installed with values, if it isn't.
func (s *Scenario) Have(values Values) {
	s.t.Helper()
	s.installation.change.Lock()
	defer s.installation.change.Unlock()
	if !s.installation.is(values) {
		s.Do("install the product as the scenario wants it", func(ctx context.Context) error { return s.Install(ctx, values) })
	}
}

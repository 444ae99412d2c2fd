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
	change sync.Mutex // held while a new scenario changes it

	mu     sync.Mutex
	known  bool
	values Values
	pods   int // how often its pods had to be recreated
}

// annotations returns those of the release's pods.
func (i *installation) annotations() Values {
	i.mu.Lock()
	defer i.mu.Unlock()
	return Values{"meshcni-e2e/pods": strconv.Itoa(i.pods)}
}

// renew makes the next installation recreate all pods, even without other changes.
func (i *installation) renew() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.known = false
	i.pods++
}

// is reports whether the release is known to have these values.
func (i *installation) is(values Values) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.known && (len(i.values) == 0 && len(values) == 0 || reflect.DeepEqual(i.values, values))
}

func (i *installation) become(values Values) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.known, i.values = true, values
}

// forget records that the installed values are unknown.
func (i *installation) forget() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.known = false
}

// Changed makes the next scenario install the product in any case, because its objects were changed
// by other means than [Suite.Install].
func (s *Suite) Changed() { s.installation.forget() }

// BeginWith is [Suite.Begin] with the product installed with values ([Suite.Install]). The values
// stay after the scenario; the next one chooses its own when it begins.
func (s *Suite) BeginWith(t *testing.T, values Values) *Scenario {
	t.Helper()
	b := s.BeginAsItIs(t)
	b.Have(values)
	return b
}

// Have installs the product with values, unless it has them already.
func (s *Scenario) Have(values Values) {
	s.t.Helper()
	s.installation.change.Lock()
	defer s.installation.change.Unlock()
	if !s.installation.is(values) {
		s.Do("install the product as the scenario wants it", func(ctx context.Context) error { return s.Install(ctx, values) })
	}
}

// SPDX-License-Identifier: Apache-2.0

package nodemode

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/meshcni/meshcni/interception"
)

// ErrSettings is wrapped by the error about settings of the agent's interfaces that another program
// changes again and again. The agent writes them once in Options.SettingsRound.
var ErrSettings = errors.New("another program changes settings of the capture's interfaces")

// settings knows when the agent last wrote settings that another program had changed.
type settings struct {
	written map[string]time.Time // by namespace
	errs    map[string]error     // what is not written yet
}

// mayHeal notes a difference from a plan, and reports whether it may be healed now. Only a
// difference in settings alone waits. If the plan itself is new, no other program has made the
// difference.
func (s *settings) mayHeal(key string, drifts []interception.Drift, ofPlan bool, round time.Duration) bool {
	isSetting := func(d interception.Drift) bool { return d.At == "sysctls" }
	delete(s.errs, key)
	if ofPlan || !slices.ContainsFunc(drifts, isSetting) {
		return true
	}
	others := slices.ContainsFunc(drifts, func(d interception.Drift) bool { return !isSetting(d) })
	if last, was := s.written[key]; was && !others && time.Since(last) < round {
		if s.errs == nil {
			s.errs = map[string]error{}
		}
		s.errs[key] = fmt.Errorf("%w again and again: %s: find it, such as sysctl or systemd-networkd, and have it leave the interface alone",
			ErrSettings, drifts[0])
		return false
	}
	if s.written == nil {
		s.written = map[string]time.Time{}
	}
	s.written[key] = time.Now()
	return true
}

// forget forgets a namespace that is not kept any more.
func (s *settings) forget(key string) {
	delete(s.written, key)
	delete(s.errs, key)
}

// err returns what is not written yet.
func (s *settings) err() error {
	for _, err := range s.errs {
		return err
	}
	return nil
}

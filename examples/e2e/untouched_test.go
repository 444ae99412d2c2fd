// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"testing"

	"github.com/meshcni/meshcni/examples/e2e/internal/scenario"
)

// TestUntouched checks that a pod that was not injected, and an injected one in an excluded
// namespace, have no rules and no proxy between them.
func TestUntouched(t *testing.T) {
	suite.Long(t)
	t.Parallel()
	s := suite.Begin(t)
	plain := s.Pod(scenario.Workload{Name: "plain"})
	excluded := s.Pod(scenario.Workload{Name: "excluded", Namespace: "kube-system", Injected: true})
	s.Expect(plain, excluded, 8080)
	s.Expect(excluded, plain, 8080)
	if rules := s.Rules(plain); rules != "" {
		t.Errorf("a pod that wasn't injected has rules:\n%s", rules)
	}
	if rules := s.Rules(excluded); rules != "" {
		t.Errorf("a pod of an excluded namespace has rules:\n%s", rules)
	}
	captured := s.Pod(scenario.Workload{Name: "captured", Injected: true})
	if rules := s.Rules(captured); rules == "" {
		t.Error("an injected pod has no rules: the others say nothing")
	}
	s.Delete(excluded)
}

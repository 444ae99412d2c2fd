// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// TestImmutable knows the refusal of a UID from others.
func TestImmutable(t *testing.T) {
	t.Parallel()
	for at, want := range map[string]bool{"metadata.uid": true, "metadata.annotations": false} {
		err := apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "web", field.ErrorList{field.Invalid(field.NewPath(at), "x", "no")})
		if isImmutable(err, "metadata.uid") != want {
			t.Errorf("%s: got %t", at, !want)
		}
	}
}

// TestPauses are as long as the API server asks for, and no shorter than planned.
func TestPauses(t *testing.T) {
	t.Parallel()
	for seconds, want := range map[int]time.Duration{0: 2 * time.Second, 1: 2 * time.Second, 7: 7 * time.Second} {
		if got := atLeast(2*time.Second, apierrors.NewTooManyRequests("slower", seconds)); got != want {
			t.Errorf("asked for %d s: got %v", seconds, got)
		}
	}
	pause, total := pauses(), time.Duration(0)
	for range 20 {
		step := pause.Step()
		if total += step; step < 200*time.Millisecond || step > 45*time.Second {
			t.Errorf("a pause of %v", step)
		}
	}
	if total < time.Minute {
		t.Errorf("20 pauses take %v: they do not grow", total)
	}
}

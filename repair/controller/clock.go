// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"time"

	"k8s.io/utils/clock"
)

// calmClock is the system's clock without tickers. The queue has one that wakes it up every ten seconds, for timers that don't fire; the
// system's do.
type calmClock struct{ clock.RealClock }

// NewTicker returns a ticker that never ticks.
func (calmClock) NewTicker(time.Duration) clock.Ticker { return silence{} }

type silence struct{}

// C is never ready.
func (silence) C() <-chan time.Time { return nil }

// Stop has nothing to do.
func (silence) Stop() {}

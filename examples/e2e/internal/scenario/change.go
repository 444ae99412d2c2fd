// SPDX-License-Identifier: Apache-2.0

package scenario

import "context"

// Change is [Suite.Install] without waiting for the daemons: after some changes they never become
// ready.
func (s *Suite) Change(ctx context.Context, values Values) error {
	s.installation.forget()
	return s.install(ctx, values)
}

// The crate `rand` with the interface of version 0.4 that the data set was written for:
// gen_range(low, high). All else is rand 0.8's own.
pub use rand08::*;

pub trait Rng: rand08::RngCore {
    fn gen_range<T>(&mut self, low: T, high: T) -> T
    where
        T: rand08::distributions::uniform::SampleUniform + PartialOrd,
    {
        rand08::Rng::gen_range(self, low..high)
    }
    fn gen<T>(&mut self) -> T
    where
        rand08::distributions::Standard: rand08::distributions::Distribution<T>,
    {
        rand08::Rng::gen(self)
    }
    fn gen_bool(&mut self, p: f64) -> bool {
        rand08::Rng::gen_bool(self, p)
    }
    fn shuffle<T>(&mut self, values: &mut [T]) {
        rand08::seq::SliceRandom::shuffle(values, self)
    }
}
impl<R: rand08::RngCore + ?Sized> Rng for R {}
